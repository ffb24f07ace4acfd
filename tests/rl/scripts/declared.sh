#!/bin/bash
for arg in "$@"; do
  case $arg in
    NODES=*|TP=*) export "$arg" ;;
    *=*) eval "$arg" ;;
  esac
done
NODES=${NODES:-4}
declare "VAR_$NODES=7"
export "GLOBAL=$((NODES * 8))"
x="VAR_$NODES"
declare -n refvar=$x
python train.py --n $NODES --v ${!x} --g $GLOBAL --r $refvar
