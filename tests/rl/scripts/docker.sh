#!/bin/bash
docker run --rm --gpus all -v $PWD:/w img:latest bash -c '
export N=3
python train.py --actor-num-nodes $N --tensor-model-parallel-size '"${TP:-4}"' --colocate
'
