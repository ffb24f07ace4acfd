# Small scripts, each held against bash itself.

f() { local TP=8; X=3; }; TP=2; f; go $TP $X
#----
A=0; export A=1 B=2$A; f() { local A=7 C=$A; D=$C; }; f; readonly A=3 E=$A; go x$B x$D x$E; F=1 G=2$F; go $G
#----
N=4; bash -c 'go ${N:-none}'; bash -c 'A=5'; go ${A:-unset}
#----
X=a1b2; go ${X//[0-9]/} ${X//[^0-9]/_} ${X/#a/z} ${X/[0-9]*/}
#----
[ ! "$X" = 1 ] && go yes || go no
#----
case "*" in "*") go star;; *) go other;; esac; case ab in "a*") go q;; a\*) go e;; a*) go r;; esac
#----
false; go $?; [ 1 = 1 ]; go $?
#----
A=(1 2 3); for i in "${!A[@]}"; do A[$i]=$((A[i]*2)); done; go ${A[@]}
#----
go ${@:1:2} x; set -- a b c d; go "${@:2}" "${@:2:2}" ${*: -1} ${#@} ${#} "${@: -2:1}"
#----
for i in {1..2}; do for p in a b; do [[ $p == a && $i -eq 2 ]] && continue 2; go $i$p; done; done
#----
if [ -n $NOPE ]; then go t; else go f; fi
#----
X="a b"; if [ "$X" == "a b" ] && [ ${#X} -gt 2 ]; then go t; fi
#----
go "${X:-a b}" ${X:-a b} "${X:-"q r"}" ${X-'s t'}
#----
printf -v X "%s-%02d" a 3; go $X $(printf "%.2f" 3.14159) $(printf "%5s|%-5s|" a b)
#----
go $(echo a | tr a b) $(echo "a,b" | cut -d, -f2) $(echo 1 2 3 | wc -w) $(printf 'a\nb\n' | wc -l) $(echo abc | sed s/b/x/) $(echo "a b c" | awk '{print $2}') $(echo a:b | awk -F: '{print $1}')
#----
f() { echo "log" >&2; echo out; }; go $(f)
#----
x=$( { echo a; echo b; } ); go "$x"
#----
select_it() { local -n ref=$1; ref=9; }; V=1; select_it V; go $V
#----
eval "T=$((3+4))"; go $T; eval go \$T
#----
go a{1,2}"b c" {$((1+1)),3}
#----
[[ a1 =~ ^[a-z][0-9]$ ]] && go m; re="^a.*"; [[ abc =~ $re ]] && go m2; [[ "a.c" =~ "a.c" ]] && go m3; [[ "abc" =~ "a.c" ]] || go m4
#----
case $X in "") go empty;; *) go full;; esac
#----
X=abc; go ${X:1} ${X:0:-1} ${X: -1:1} ${X^} ${X@U} ${X@Q}
#----
i=5; i=$i+1; go $i $(($i))
#----
x=08; go $((10#$x + 1))
#----
! [ 1 = 2 ] && go yes
#----
f() { return 3; }; f || go no
#----
A=$(cat <<< "hello"); go $A
#----
set -- x y; while (( $# )); do go $1; shift; done
#----
declare -i n=5; n=n+3; n+=2; go $n
#----
f() { declare -i k=2+3; local z=$1 k2=$((k*2)); go $k $k2 $z; }; k=1; f q; go $k ${z:-none}
#----
N=2; if ((N>1)) && ((N<4)); then go in; elif ((N==9)); then go nine; fi
#----
A=abc-def_ghi; go ${A//[-_]/} ${A%%[-_]*} ${A##*[-_]} ${A/-*_/+}
#----
shopt -s extglob
X=qwen3-30b; case $X in qwen@(2|3)-*) go e;; *) go n;; esac; go ${X##+([a-z])} ${X/%+([0-9])b/Z}
#----
A=x; go ${A:+--flag $A} ${B:+--flag $B}
#----
IFS=, ; set -- 1,2,3; go $1; X=a,b; go $X; unset IFS; go $X
#----
test 3 -gt 2 && go a; test -z "" && go b; test x = x -a y = y && go c; if test ! -d /nope; then go d; fi
#----
P=h100; { [ "$P" = h100 ] && NODES=4; } || NODES=2; [ "$P" = a100 ] || { TP=8; PP=1; }; go $NODES $TP $PP
#----
TP=8; P=h; if [ "$P" = h -a "$TP" -eq 8 ]; then X=1; fi; if [ ! "$X" = 1 ]; then Y=1; else Y=2; fi; if test "$Y" -eq 2; then Z=3; fi; if ! [ "$Z" = 3 ]; then W=0; else W=1; fi; go $X $Y $Z $W
#----
W=1; Z=3; [[ ! $W == 0 && ( $Z > 2 ) ]] && V=5; [[ h100 == @(h100|h200) ]] && U=6; [[ h1x = h1* ]]; T=$?; (( 3 == 8 )); S=$?; go $V $U $T $S
#----
while IFS='=' read -r k v; do [[ -z $k || $k == \#* ]] && continue; OV+=("$k=$v"); done <<CFG
# comment
a=1

b=2=3
CFG
while read -r line; do OV+=("$line"); done < <(printf '%s\n' x=1 y=2); go "${OV[@]}"
#----
OLDIFS=$IFS; IFS=:; parts=($(echo "4:8:2")); IFS=$OLDIFS; for p in ${parts[@]}; do S=$((${S:-0} + p)); done; go $S ${#parts[@]}
#----
steps=(1 2 4 8); go ${steps[${#steps[@]}/2]} ${steps[-1]} "${steps[@]:1:2}" $((steps[1]+steps[2])) ${steps[$((1+1))]}
#----
A=(1 2); (( A[0] += 5, A[1]++ )); declare -A M=([x]=3); k=x; (( M[$k] *= 2 )); (( M[x]++ )); go ${A[@]} ${M[x]}
#----
NODES=2; x="VAR_$NODES"; declare "VAR_$NODES=7"; export "GLOBAL=$((NODES * 8))"; go ${!x} $GLOBAL
#----
cat > f.env <<EOF
TP=4
EOF
source f.env; go $TP $(cat f.env)
#----
export TP=4; echo 'tp=${TP} ${Q}' > t; envsubst < t > u; go "$(cat u)" 
#----
cat > in.sh <<'E2'
go in $1 ${N:-none}
E2
N=3; bash in.sh 7; N=4 bash in.sh 8; export N; bash in.sh 9
#----
f() { set -- "${@/#/--}"; printf '%s ' "$@"; }; go $(f a b)
#----
X='a b'; Y=("$X" c); go "${Y[@]}" ${Y[0]} "${Y[*]}"; EX=("p q" r); go ${EX[@]+"${EX[@]}"} ${NO[@]+"${NO[@]}"}
#----
echo "a b" | { read x y; go $y; }; echo "1 2" | while read a b; do go $b $a; done
#----
mapfile -t L <<< $'x\ny z'; go "${L[@]}" ${#L[@]}; readarray -t M < <(seq 3); go ${M[@]}
#----
last() { echo "${@: -1}"; }; max() { local m=$1; shift; for x in "$@"; do (( x > m )) && m=$x; done; echo "$m"; }; go $(last a b c) $(max 3 9 4)
#----
join_by() { local IFS="$1"; shift; echo "$*"; }; A=(1 2 3); go "[$(join_by , "${A[@]}")]"
#----
a=b/c/d; go ${a//\//-} ${a//'/'/.} ${a/b\/c/x}; s=/; go ${a//$s/+} ${a%"$s"*} ${a%$s*}
#----
set -a; Q=3; set +a; R=4; bash -c 'go ${Q:-0} ${R:-0}'
#----
x=5; (( x > 3 ? (y=1) : (y=2) )); go $y; ((x++)); go $x; (( z = x * 2 )) && go $z; let "w = z + 1"; go $w
#----
A=; [ $A = 1 ] 2>/dev/null && go a || go b; [ -n "$A" ] || go c; [[ $A ]] || go d; [ "" ] || go e; [[ -z $A && -n x ]] && go f
#----
case 235b in *[0-9]b) go d;;& [!0-9]*) go no;; 2*) go e;; esac
#----
i=0; until (( i >= 3 )); do ((i+=1)); done; go $i; for ((;;)); do ((i++ > 5)) && break; done; go $i
#----
A="1 2 3"; for x in $A; do B="$B,$x"; done; B=${B#,}; go [$B] ${B//,/ } "${B//,/ }"
#----
printf '%s\n' "--a" "b c" | xargs echo >/dev/null; go $(printf '%s,%s\n' 1 2)
#----
V=$(( $(echo 3) + $(echo "4") )); go $V `echo 5` "$(echo "$(echo "6 7")")"
#----
N=4; go "n$N"'$N'"\$N" n${N}x "${N}B" $N/$N ${N:-}${M:-z}
#----
go $(for i in 1 2; do printf '%s-' $i; done) $(echo -n a; echo -n b)
#----
A=(--x 1
 # c
 --y "a b"  # d
)
A+=( --z "${A[1]}" ); go "${A[@]}"
#----
[ "$(echo 3)" -ge 2 ] && go y; [[ "$(printf %d 7)" == 7 ]] && go z
#----
f() { local a=1; g; go $a; }; g() { a=2; }; f; go ${a:-none}
#----
f() { if [[ $1 -gt 3 ]]; then return 0; else return 1; fi; }; if f 4; then go y; fi; f 2 || go n; f 5 && go yy
#----
x=a; case $x in a|b) case $x in b) go b;; a) go a;; esac;; esac
#----
A=(x y z); A=("${A[@]:0:1}" "${A[@]:2}"); go ${A[@]}; A[${#A[@]}]=n; go ${A[@]} ${A[@]: -1:1}
#----
go ${#NOTHING} ${NOTHING:-$(echo d)} ${NOTHING:=e} $NOTHING
#----
X="1,2;3"; IFS=',;' read -ra P <<< "$X"; go ${P[2]} ${#P[@]}; IFS=, read a b <<< "$X"; go $b
#----
time_it() { "$@"; }; time_it go a b; cmd="go c d"; $cmd; cmdv=(go e "f g"); "${cmdv[@]}"
#----
T=; for a in --x=1 --y 2; do case "$a" in --x=*) T+="${a#*=}";; --y) T+=y;; esac; done; go $T
#----
env A=1 bash -c 'go $A'; A=2; go $A
#----
A=1; B=2; go "$A $B" " $A  ${B} $A" "$A	$B" "x $A"
#----
A=1; cat > t <<EOF
$A $A
 $A
EOF
go "$(cat t)"
#----
echo "tp: 4" > c.yaml; TP=$(grep tp c.yaml | awk '{print $2}'); TP2=$(grep '^tp:' c.yaml | cut -d: -f2 | tr -d ' '); go $TP $TP2
#----
HOSTS=n1,n2,n3; N=$(echo $HOSTS | tr ',' '\n' | wc -l); first=$(echo "$HOSTS" | cut -d',' -f1); IFS=',' read -r -a H <<< "$HOSTS"; go $N $first ${H[2]} ${#H[@]}
#----
f() { local -A o=([tp]=1 [pp]=2); local k; for k in tp pp; do o[$k]=$((o[$k]*4)); done; echo "${o[tp]} ${o[pp]}"; }; read -r T P <<< "$(f)"; go $T $P
#----
ARGS="--a 1"; [ -n "$ARGS" ] && ARGS="$ARGS --b 2"; ARGS+=" --c '3 4'"; eval "go $ARGS"; go $ARGS
#----
declare -a L; L[0]=a; L[1]=b; L+=("c d"); for i in ${!L[@]}; do go $i "${L[$i]}"; done
#----
N=8; (( N > 4 )) && { TP=4; PP=2; } || { TP=1; PP=1; }; go $TP $PP; ((N==8)) || go never; ((N-8)) && go never2
#----
if ! grep -q zzz /dev/null 2>/dev/null; then :; fi; go ok
#----
select_size() { case "$1" in *0.6B|*1.7B) echo small;; *[0-9]B) echo big;; esac; }; go $(select_size Qwen3-0.6B) $(select_size Qwen3-32B)
#----
x="$(( 2 ** 10 ))k"; y=$((x2 = 5)); go $x $y $x2 $(( y == 5 && 1 )) $(( ! y ))
#----
go --flag="a b" --k='{"x": 1}' "a=[${N:-1},2]" k={a:1,b:2}
#----
A=(a=1 b=2); for kv in "${A[@]}"; do IFS='=' read -r k v <<< "$kv"; declare "$k=$v"; done; go $a $b
#----
OPTS=$(printf -- '--%s ' x y z); go ${OPTS% } ; printf -v j ',%s' 1 2; go ${j:1}
#----
f() { while [ $# -gt 0 ]; do case $1 in --n) n=$2; shift 2;; --n=*) n=${1#--n=}; shift;; *) shift;; esac; done; }; f --x --n=5 y; go $n; f --n 6; go $n
#----
A=5; f() { A=$1; }; (f 9); go $A; f 7; go $A; x=$(f 3; echo $A); go $x $A
#----
while [[ $# -lt 2 ]]; do set -- "$@" z; done; go "$@"
#----
NODE=${HOSTNAMEX%%.*}; V=${NODE:-default}; go $V
#----
[[ "a b" == "a "* ]] && go 1; [[ "x.y" == x.y ]] && go 2; [[ abc < abd ]] && go 3; [[ 10 -gt 9 && "10" < "9" ]] && go 4; [[ -z "" || $(( 1 / 1 )) ]] && go 5
#----
MODEL=Qwen/Qwen3-30B-A3B-Instruct; n=${MODEL##*/}; if [[ $n =~ ([0-9]+)B-A([0-9]+)B ]]; then go ${BASH_REMATCH[1]} ${BASH_REMATCH[2]} "${n,,}" ; fi
#----
TP=2 PP=3
n=0 # c
A=1 B=2 # c
until [ $n -ge 2 ]; do ((n++)); done
if true; then C=1 D=2
E=3
go $C $D $E
fi
go $TP $PP $A $B $n; Z=1 \
 bash -c 'go $Z'
#----
X=5; Y=X; go ${!Y} $((Y)) $((Y+1)) ${!Y:-3}
#----
declare -A M=([a]=1 [b]=2); go ${#M[@]} "${M[b]}"; M[c]=3; unset "M[a]"; go ${#M[@]} ${M[a]:-none}
#----
cat <<E | while read -r x; do go "$x"; done
a b
c
E
#----
cat > t <<-EOF
	tp=4
	  pp=2
	EOF
. ./t; go $tp $pp "$(cat t)"
#----
cat <<'EOF' > t
a=$X
EOF
go "$(cat t)"; X=3; source t; go $a
#----
cat >> t <<EOF
a=1
EOF
cat >> t <<EOF
b=2
EOF
. t; go $a $b $(wc -l < t)
#----
A_x=1; A_y=2; B=3; go ${!A_*} "${!A_@}"
#----
trap 'go bye' EXIT; go hi
#----
trap 'echo err' ERR; trap - ERR; go $(trap 'echo out' EXIT; echo in)
#----
VAL=$(false) || VAL=default; go $VAL
#----
VAL=$(echo x | grep y) || VAL=default; go $VAL
#----
f() { echo hi; return 3; }; x=$(f); go $? $x
#----
f() { return 3; }; f; go $?; f || go $?; ! f; go $?
#----
x=$(exit 4); go $?; (exit 5); go $?
#----
f() { local x=$(false); go $?; local y; y=$(false); go $?; }; f
#----
set -- -vn 3 -z a; while getopts ":vn:" o; do case $o in v) V=1;; n) N=$OPTARG;; \?) go bad $OPTARG;; :) go miss $OPTARG;; esac; done; shift $((OPTIND - 1)); go $V $N "$@"
#----
set -- -n; while getopts ":n:" o; do case $o in n) N=$OPTARG;; :) go miss $OPTARG;; esac; done
#----
go $(( 3 > 2 ? 10 : 20 )) $(( 16#ff )) $(( 2#101 )) $(( 0x1F + 010 )) $(( 36#z )) $(( 64#Z ))
#----
printf -v x '%q' "a b"; go "$x"; printf -v y '%b' 'a\tb'; go "$y"; printf -v z '%*d' 5 3; go "$z"; printf -v c %c abc; go $c
#----
IFS=, read -ra A <<< "1,2,3,"; go ${#A[@]}; IFS=$'\t' read -r a b <<< $'x y\tz'; go "$a" "$b"
#----
mapfile -t A < <(printf 'a\nb c\n'); go "${A[@]}" ${#A[@]}; mapfile -t -n 1 B <<< $'p\nq'; go "${B[@]}"; mapfile -d, -t C < <(printf 'x,y'); go "${C[@]}"
#----
mapfile -t -s 1 A <<< $'h\na\nb'; go "${A[@]}"; readarray L <<< $'a\nb'; go "${L[0]}"
#----
re='^v([0-9]+)\.([0-9]+)$'; [[ v1.25 =~ $re ]] && go "${BASH_REMATCH[@]:1}"; [[ "x" =~ $re ]] || go none ${#BASH_REMATCH[@]}
#----
[[ "a+b" =~ a\+b ]] && go 1; [[ "ab" =~ ^(a|c)(b|d)$ ]] && go ${BASH_REMATCH[2]}; [[ aXb =~ [[:upper:]] ]] && go ${BASH_REMATCH}
#----
f() { cat <<EOF
--a $1
--b ${2:-2}
EOF
}; go $(f 1) ; A=($(f 3 4)); go ${#A[@]} "${A[@]}"
#----
cat <<A > x; cat <<B > y
1
A
2
B
go $(cat x) $(cat y)
#----
while read -r k v; do declare "$k=$v"; done <<EOF
tp 4
pp 2
EOF
go $tp $pp
#----
go "$(printf '%s' "a
b")" $'x\ty' $'\x41\u0042\'q' $'\101'
#----
get() { case $1 in 8B) echo "4 2";; 32B) echo "8 4";; *) return 1;; esac; }; read TP PP <<< "$(get 32B)"; go $TP $PP; if R=$(get 70B); then go $R; else go none; fi
#----
printf '%s\n' a b c > f; go $(head -1 f) $(tail -n 1 f) $(sed -n 2p f) $(wc -l < f) $(sort -r f | head -n1) $(awk 'NR==2' f) $(paste -sd, f) $(grep -c . f)
#----
{ echo a; echo b; } > f; go $(cat f); ( echo c ) >> f; go $(cat f | tr '\n' ' ')
#----
tee f <<< "x y" > /dev/null; go $(cat f); echo 1 | tee g >/dev/null; go $(<g) "$(< f)"
#----
go "${FUNCNAME[0]:-main}"; f() { go "${FUNCNAME[0]}" $FUNCNAME; }; f
#----
N=$(echo "a b c" | awk '{print NF}'); go $N; go $(echo "a=1,b=2" | tr ',' '\n' | grep '^b' | cut -d= -f2)
#----
x="a
b"; while IFS= read -r l; do go "[$l]"; done <<< "$x"; while read -r l || [ -n "$l" ]; do go "$l"; done < <(printf 'p\nq')
#----
x=10; f() { local x=20; g; }; g() { go $x; }; f; g
#----
function f() ( X=9; go $X ); X=1; f; go $X
#----
go "${@:-none}" "${*:-none2}"; set -- 1; go "${@:-none}" "${1+set}" "${2+set}x"
#----
if [[ "$OSTYPE" == linux* ]]; then go l; fi
#----
f() { echo hi; return 3; }; x=$(f); go $? $x; g() { f >/dev/null; }; g; go $?; [ 1 = 2 ]; go $?; ((0)); go $?
#----
# lines "of <<EOF in comments
x=$(( 1 << 4 )); (( y = 2 << 1 )); go $x $y; z="a <<EOF b"; go "$z" 'c <<EOF d'
#----
x=$(cat <<'EOF'
it's a "test" $x `y` \$z
EOF
); go "$x"
#----
x=$(cat <<EOF
it's "q" \$z \\ \
joined $((2*3)) ${u:-d} $(echo "p q")
EOF
); go "$x"
#----
if true; then
  cat <<EOF > f
  a
EOF
fi
f2() {
cat <<X
$1
X
}
go "$(cat f)" "$(f2 5)"
#----
for i in 1 2; do
  read -r v <<EOF
$i x
EOF
  go "$v"
done
#----
args=$(cat <<EOF | grep -v '^#' | tr '\n' ' '
# comment
--a 1
--b 2
EOF
); go $args
#----
A=("$(cat <<E
x
E
)" y); go "${A[@]}"
#----
echo "8B 16 32B" | grep -oE '[0-9]+B' > f; mapfile -t S < f; go "${S[@]}"; N=$(echo Qwen3-30B-A3B | sed -E 's/.*-([0-9]+)B-A([0-9]+)B/\1 \2/'); go $N
#----
N=$(echo Qwen3-8B | sed 's/.*-\([0-9]*\)B/\1/'); go $N $(echo a.b.c | sed 's/\./-/g') $(echo x | sed 's/x/[&]/') $(echo a/b | sed 's|/|_|')
#----
if echo "h100-80gb" | grep -qi H100; then go y; else go n; fi; echo abc | grep -q z || go none; grep -q a <<< abc && go found
#----
TOT=$(printf '%s\n' 3 10 2 | sort -n | tail -1); go $TOT $(printf 'b\na\nb\n' | sort -u | tr '\n' ',') $(printf 'b\na\n' | sort | uniq | paste -sd,)
#----
usage() { cat <<EOF
Usage: $0 [-n N]
EOF
exit 1; }
while getopts "n:h" opt; do case ${opt} in n) N="${OPTARG}" ;; h) usage ;; esac; done; shift $((OPTIND -1)); go ${N:-3}
#----
parse() { local key val; while (( $# )); do key=${1%%=*}; val=${1#*=}; case "$key" in --*) key=${key#--}; key=${key//-/_}; printf -v "${key^^}" '%s' "$val";; esac; shift; done; }; parse --num-nodes=4 --tp=2; go $NUM_NODES $TP
#----
declare -A CFG=( ["8B"]="tp=2 pp=1" ["32B"]="tp=4 pp=2" ); S=32B; for kv in ${CFG[$S]}; do export "${kv%%=*}"="${kv##*=}"; done; go $tp $pp
#----
s=abc; for ((i=0;i<${#s};i++)); do go "${s:i:1}"; done; go "${s:$((1)):1}" "${s: -2}" ${s:(-1)}
#----
x=$'a\tb'; go "$x" "${x/$'\t'/-}"; y="line1
line2"; go "${y%%$'\n'*}" "${y//$'\n'/,}"
#----
true; rc=$?; go $rc; (exit 7) || rc=$?; go $rc; f() { local rc=$?; go $rc; }; (exit 2); f
#----
out=$(echo a; exit 3); st=$?; go $out $st; if ! out=$(false); then go failed; fi
#----
cleanup() { go cleaned; }; trap cleanup EXIT; go working; exit 0; go never
#----
(trap 'go sub' EXIT; go in); go out
#----
IFS=$'\n' read -rd '' -a L <<< $'x y\nz' ; go "${L[@]}"; IFS=$'\n'; for l in $(printf 'p q\nr\n'); do go "$l"; done
#----
read -r -p "size? " A B < <(echo 1 2); go $A $B; read -n 2 C <<< "xyz"; go $C
#----
export PP=2; export -n PP; bash -c 'go ${PP:-no}'; export $(echo "Q=1 R=2"); go $Q $R
#----
while IFS=: read -r a b c; do [[ $a = \#* ]] && continue; go "$a" "$b" "$c"; done <<< "# c
x:1:2:3
y::z"
#----
set -- a b c; go "${@:$#}" "${@:1:$#-1}" ${@:1:$#-2}; A=(p q r); go "${A[@]:0:$#-1}"
#----
. <(echo "TP=4"); go $TP; go $(cat <(printf "a\nb\n") | wc -l)
#----
x="b c"; e=; y=" d "; a=(1 "2 3" 4); go k=$x "$x"y$x $x$x; go a${y}b $y"q" p$y $e"" k=$e; go k="${a[@]}" k=${a[@]} "k=${a[*]}"z; go k=$(echo f g)h
#----
IFS=,; x=a,b; go k=$x,c "k=$x" k=${x}; k=$x; go "$k"; for i in p$x; do go "$i"; done
#----
go \
  a=1 `# it's a "remark` \
  b=2 ` # another` \
  c=3 'a `# none` d'
#----
go $(echo a/b | sed 's/\//-/') "$(echo a/b | sed 's#/#\\#g')"; x=$(echo b | sed 's/b/c/;s/c/d/'); [ "$x" = "c/;s/c/d" ] && go wrong
#----
go $(dirname /a/b/) $(dirname a) $(dirname /) $(dirname /a) $(dirname a/b//) $(basename /a/b/) $(basename /) $(basename a.sh.sh .sh) $(basename .sh .sh)
#----
f() { go a; }; f; unset -f f; f 2> /dev/null; v=1; unset -v v; go ${v:-gone}
#----
O=; go $O$O end; go k=$O$O z ""$O; X="--a=1 --b=2"; go $X$O ${X}${X} "$X"$X
#----
go $(( $(echo "0,1,2" | tr -cd , | wc -c) + 1 )) $(echo a1b22 | tr -dc 0-9)
#----
go $(printf '1\n2 3\n' | xargs -n 2 echo a) $(printf 'a b\n\n c\n' | xargs -I{} echo "x{}y") $(printf "'p q' r" | xargs printf '%s;')
#----
cat > .env <<'E'
# nodes
N=3
M=a/b
E
export $(grep -v '^#' .env | xargs); go $N $M; bash -c 'go $N'
#----
printf '%s\n' a=1 'b="2 3"' | xargs bash -c 'go "$@"' name; echo "x,y" | xargs -d , -n 1 bash -c 'go "$@"' n; printf '1 2\n3\n' | xargs -L 1 bash -c 'go "$@"' n
#----
A=a; B=b; K=$A/x/$B/y; export L=$A-$B-z M=${A}/$B.c/$A; go $K $L $M data.files=$A/x/$B/t.parquet save="$A"/$B/c
#----
set -- 7; A=a; go Qwen-$1b-x ${A}/\$B "$A"\$B/$A
#----
A=(a=`echo 4`); B+=(c.d=`echo 5`); go ${A[@]} ${B[@]} e=`echo 6`; for i in x`echo 7`; do go $i; done; A=a; L=(p=`echo $A/b/$A/c`); go ${L[@]}
#----
N=2; go a=`echo /m`/Q b=$N`echo 0` c=`echo 1`""6 d=`echo x`/`echo y`/z$N; A=(p=`echo a`$N/c); go ${A[@]} `echo k`/b; for i in x`echo 7`/y`echo 8`; do go $i; done
#----
s=$(printf '1\n2\n3\n4\n'); go $(head -n -1 <<< "$s") end $(head -n-3 <<< "$s") $(tail -n +3 <<< "$s") $(tail -n -1 <<< "$s") $(head -2 <<< "$s") $(tail -3 <<< "$s") $(head -n -9 <<< "$s")
#----
A=2+2; B=-3; N=08; C=" 4 "; go $(($A*2)) $((A*2)) $((5-$B)) $((-$B)) $((3*-$B)) $(($B**2)) $((10#$N+1)) $((10#${N}+1)) $((16#${N} * 2)) $(($C+1)) $(("$C"*2)) $(( $(echo 1+1)*3 ))
#----
go $(awk 'BEGIN{print 7/2}') $(awk -v n=4 'BEGIN {print n*2+1}') $(awk "BEGIN{printf \"%d\", 7/2}") $(awk 'BEGIN{printf("%.2f\n", 1/3)}') $(awk 'BEGIN{print 1/3; }') $(awk 'BEGIN{print 2^0.5}') $(awk 'BEGIN{print -7%3}')
#----
N=3; go {1..$N} a{1,${N}}b x{1.."$N"} $(eval echo {1..$N}) {1..3}$N {$N,4}; for i in {1..$N}; do go turn $i; done
#----
A=([32]=4 [8]=2); S=32; go ${A[$S]} ${A[S]} ${A[9]:-none} ${#A[@]} "${!A[@]}" "${A[@]}" "$A" ${A[-1]}; B[8]=2; B+=(5); B[0]=1; go "${!B[@]}" "${B[@]}" $B; ((B[8]+=4)); B[9]+=6; go ${B[8]} ${B[9]}
#----
A=(a b c d); unset 'A[1]'; unset A[-1]; go "${!A[@]}" "${A[@]}"; A+=(e); go "${!A[@]}"; unset A[0]; A=("${A[@]}"); go ${A[1]} ${#A[@]}; A[7]=x; (A[7]=y); go ${A[7]} $(echo ${A[7]}); A=(1); go ${#A[@]}
#----
declare -a A=([4]=z [1]=y); f() { local A=(1 2); go ${A[1]}; }; f; go ${A[4]} ${#A[@]}; A+=([6]=w); for i in "${!A[@]}"; do go $i ${A[i]}; done; [[ -v A[4] && ! -v A[3] ]] && go there; mapfile -t A <<< $'p\nq'; go ${A[1]}
