#!/bin/bash
printf '#!/bin/sh\necho "hello $1"\n' > /usr/local/bin/greet
chmod 755 /usr/local/bin/greet
