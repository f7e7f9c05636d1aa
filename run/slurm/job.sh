#!/bin/bash
#SBATCH --job-name={{.Name}}
#SBATCH --array=1-{{.Shards}}
#SBATCH --output="{{.Dir}}/%A_%a.log"
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
#SBATCH --signal=B:TERM@{{seconds .Grace}}
set -u
{{- if .NodeDir}}
export SBENCH_ROOT="{{.NodeDir}}" SBENCH_STATE="{{.NodeDir}}/state"
{{- end}}

process=""
trap '[ -z "$process" ] || kill -TERM "$process"' TERM
{{- range .Prepare}}
{{words .}} || exit
{{- end}}
{{words .Command}} --shard auto/{{.Shards}} --resume &
process=$!
while wait "$process"; code=$?; kill -0 "$process" 2>/dev/null; do :; done

# 130 is the end of an interrupted run. Unless somebody wanted it, what is left comes next.
if [ "$code" = 130 ] && [ ! -e {{quote .Dir}}/cancelled ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 100 ]; then
	scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" && sleep 60
fi
exit "$code"
