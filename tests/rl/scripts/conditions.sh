#!/bin/bash
PROFILE="${PROFILE:-h100}"
{ [ "$PROFILE" = h100 ] && NODES=4; } || NODES=2
[ "$PROFILE" = a100 ] || { TP=8; PP=1; }
if [ "$PROFILE" = h100 -a "$TP" -eq 8 ]; then X=1; fi
if [ ! "$X" = 1 ]; then Y=1; else Y=2; fi
if test "$Y" -eq 2; then Z=3; fi
if ! [ "$Z" = 3 ]; then W=0; else W=1; fi
[[ ! $W == 0 && ( $Z > 2 ) ]] && V=5
[[ $PROFILE == @(h100|h200) ]] && U=6
[[ $PROFILE = h1* ]] ; T=$?
(( TP == 8 )) ; S=$?
false || R=7
! true || R=8
python train.py --n $NODES --tp $TP --pp $PP --x $X --y $Y --z $Z --w $W --v $V --u $U --t $T --s $S --r $R
