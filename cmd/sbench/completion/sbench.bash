complete -o default -o bashdefault -C sbench sbench
