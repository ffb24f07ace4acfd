#!/bin/bash
lr=1e-6; kl=0.001
N=2
while IFS='=' read -r k v; do
  [[ -z $k || $k == \#* ]] && continue
  OV+=("$k=$v")
done <<CFG
# comment
trainer.nnodes=$N

data.train_batch_size=512
CFG
while read -r line; do LINES+=("$line"); done < <(printf '%s\n' x.a=1 x.b=2)
OLDIFS=$IFS; IFS=:; parts=($(echo "4:8:2")); IFS=$OLDIFS
for p in ${parts[@]}; do S=$((${S:-0} + p)); done
python3 -m verl.trainer.main_ppo "${OV[@]}" "${LINES[@]}" x.s=$S x.n=${#parts[@]} actor.lr=$lr
