#!/bin/bash
set -euo pipefail
steps=(1 2 4 8)
sum=0
for s in "${steps[@]}"; do (( sum += s )) ; done
avg=$(( sum / ${#steps[@]} ))
mid=${steps[${#steps[@]}/2]}
last=${steps[-1]}
slice=("${steps[@]:1:2}")
total=$(( ${steps[0]} + steps[1] * slice[1] + ${slice[0]} ))
prod=1; for ((i=0;i<${#steps[@]};++i)); do prod=$(( prod * steps[i] )); done
unset 'steps[0]'
left=${#steps[@]}
keys="${!steps[*]}"
python train.py --a $sum --b $avg --c $mid --d $last --e $total --f $prod --g $left --h "$keys" --i "${steps[@]}"
