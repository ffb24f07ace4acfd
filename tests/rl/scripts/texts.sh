#!/bin/bash
# string building with quoting
NAME="DAPO-Qwen3-14B"
lower=${NAME,,}; upper=${NAME^^}
short=${NAME#*-}; base=${short%%-*}
size=${NAME##*-}; size=${size%B}
under=${NAME//-/_}
first=${NAME:0:4}; tail=${NAME: -3}
len=${#NAME}
path="/data/${NAME}/ckpt.tar.gz"
stem=${path##*/}; ext=${stem#*.}; dir=${path%/*}
ref='actor_rollout_ref'
v=NAME; ind=${!v}
quoted="it's \"quoted\" \$HOME \`x\`"
multi="a\
b"
ansi=$'tab\there'
python -m verl.trainer.main_ppo "$ref.model.path=Qwen/${short}" x.lower=$lower x.upper=$upper x.base=$base x.size=$size \
 x.under=$under x.first=$first x.tail=$tail x.len=$len x.ext=$ext x.dir=$dir x.stem=$stem x.ind=$ind "x.quoted=$quoted" x.multi=$multi "x.ansi=$ansi" \
 'x.single=${not}' x.mixed="a"'b'"c" x.list="['a','b']" x.dict="{a: 1, b: 2}"
