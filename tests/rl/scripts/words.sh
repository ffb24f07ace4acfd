#!/bin/bash
f() { set -- "${@/#/--}"; printf '%s ' "$@"; }
FLAGS=$(f colocate use-dynamic-batch-size)
arr=(a b c d)
arr=("${arr[@]:0:2}" X "${arr[@]:2}")
arr[10]=z
cnt=${#arr[@]}
rev=(); for ((i=${#arr[@]}-1;i>=0;i--)); do rev+=("${arr[i]:-none}"); done
str=$(printf '%s+' "${arr[@]}"); str=${str%+}
printf -v pad '%03d' 7
printf -v list '%s,' 1 2 3; list="[${list%,}]"
nested=$(echo $(( $(echo 3) + $(echo 4) )))
t=${FLAGS% }
python train.py $FLAGS --cnt $cnt --str $str --rev ${rev[*]} --pad $pad --list $list --nested $nested --t "$t" --i "${!arr[*]}"
