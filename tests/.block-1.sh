
trap "printf '\n%s\n' '--- a command failed ---'" EXIT
set -eo pipefail
curl() { command curl --fail-with-body "$@"; }
