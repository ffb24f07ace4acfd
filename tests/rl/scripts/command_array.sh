#!/bin/bash
# builds command as string and eval / bash -c / "${cmd[@]}"
cmd=(python3 -m areal.launcher.ray examples/math/gsm8k_rl.py)
cmd+=(--config examples/math/gsm8k_grpo.yaml)
declare -a over=("cluster.n_nodes=4" "cluster.n_gpus_per_node=8")
over=("${over[@]}" "allocation_mode=sglang:d16+d16")
[[ -n ${DEBUG-} ]] && over+=("trial_name=debug") || over+=("trial_name=real")
n=${#over[@]}
cmd=("${cmd[@]}" "${over[@]}" "count=$n")
echo "running: ${cmd[*]}"
"${cmd[@]}" 2>&1 | tee log.txt
