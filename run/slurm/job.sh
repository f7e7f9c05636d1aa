#!/bin/bash
#SBATCH --job-name={{.Name}}
#SBATCH --array=1-{{.Shards}}
#SBATCH --open-mode=append
#SBATCH --export={{join .Export ","}}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={{.CPUs}}
#SBATCH --mem={{megabyte .Memory}}M
{{- if .Partition}}
#SBATCH --partition={{.Partition}}
{{- end}}
{{- if .Account}}
#SBATCH --account={{.Account}}
{{- end}}
{{- if .Time}}
#SBATCH --time={{minutes .Time}}
{{- end}}
# The node may fail: the task then runs again, and goes on where it was.
#SBATCH --requeue
# Before time is up, attempts end in order.
#SBATCH --signal=B:USR1@{{seconds .Grace}}
set -u
{{- if .NodeDir}}
export SBENCH_ROOT="{{.NodeDir}}/root" SBENCH_STATE="{{.NodeDir}}/state"
{{- end}}

process="" again="" ended=""
trap 'ended=1; [ -z "$process" ] || kill -TERM "$process"' TERM
trap 'again=1; [ -z "$process" ] || kill -TERM "$process"' USR1
{{- range .Prepare}}
{{words .}} || exit
{{- end}}
[ -z "$ended" ] || exit 130
{{words .Command}} --shard auto/{{.Shards}} --resume &
process=$!
while wait "$process"; code=$?; kill -0 "$process" 2>/dev/null; do :; done

# The time was up before all attempts were made (130): the next task goes on with them.
if [ "$code" = 130 ] && [ -n "$again" ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 100 ]; then
	scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" && sleep 60
fi
exit "$code"
