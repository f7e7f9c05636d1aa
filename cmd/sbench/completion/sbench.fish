function __sbench_complete
    set -lx COMP_LINE (commandline --current-process --cut-at-cursor)
    set -l found (sbench 2>/dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path (commandline --current-token --cut-at-cursor)
    end
end
complete --command sbench --no-files --arguments '(__sbench_complete)'
