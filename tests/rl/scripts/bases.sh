#!/bin/bash
# arithmetic base and comparison forms
A=0x20; B=010; C=$((A + B)); D=$((16#1f)); E=$(( (A > B) && (C != 0) ))
F=$(( A ? B : C )); G=$((-A)); ((G = -G, H = G++ + ++G)); I=$[ 2 + 3 ]
let "J = 3 * (4 + 1)"; let K=J/2 K++
L=$(expr 3 \* 4 + 1); M=`expr $L - 1`
N=$(echo "scale=0; 7 * 8" | bc)
O=$(awk "BEGIN{print 3*4}")
python train.py --a $((A)) --b $((B)) --c $C --d $D --e $E --f $F --g $G --h $H --i $I --j $J --k $K --l $L --m $M --n $N --o $O
