#!/usr/bin/env bash
# deploy_test.sh DEPLOY SCHEDULER WORKER TOOL
set -euo pipefail
deploy=$1 scheduler=$2 worker=$3 tool=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
complain() { echo "$*" >&2; failed=1; }

# ---- Every option, variable and setting that a file names is one of its program's.
"$scheduler" --help >"$scratch/scheduler"
"$worker" --help >"$scratch/worker"
"$tool" --help >"$scratch/tool"
known() { grep -qE -- "(^|[[:space:]])--$2([[:space:]=,]|\$)" "$scratch/$1"; }  # <program> <option>
check_options() {  # <program> <where> <option>...
  local program=$1 where=$2 option; shift 2
  for option in "$@"; do known "$program" "$option" || complain "$where: tilewise-$program has no option --$option"; done
}
options_after() { sed -n "s/.*$2//p" "$1" | grep -oE -- '--[a-z-]+' | sed 's/^--//'; }  # <file> <command>
for program in scheduler worker; do
  unit=$deploy/systemd/tilewise-$program.service
  mapfile -t found < <(options_after "$unit" "bin\/tilewise-$program")
  [[ ${#found[@]} -ge 3 ]] || complain "$unit: no command found"
  check_options "$program" "$unit" "${found[@]}"
  mapfile -t found < <(sed -nE 's/^(# )?([a-z-]+) = .*/\2/p' "$deploy/systemd/$program.toml")
  [[ ${#found[@]} -ge 3 ]] || complain "$program.toml: no settings found"
  check_options "$program" "$program.toml" "${found[@]}"
  mapfile -t found < <(options_after "$deploy/slurm/tilewise.sbatch" "tilewise-$program ")
  check_options "$program" tilewise.sbatch "${found[@]}"
  mapfile -t found < <(awk -v p="[tilewise-$program]" '/command: \[tilewise-/{on = index($0, p) > 0} /env:/{on = 0} on' "$deploy/kubernetes/tilewise.yaml" |
    grep -oE -- '\-\-[a-z-]+' | sed 's/^--//')
  [[ ${#found[@]} -ge 3 ]] || complain "tilewise.yaml: no command of tilewise-$program found"
  check_options "$program" tilewise.yaml "${found[@]}"
done
while read -r variable; do
  option=$(tr 'A-Z_' 'a-z-' <<<"${variable#TILEWISE_}")
  [[ $variable == TILEWISE_TOKEN ]] || known scheduler "$option" || known worker "$option" || known tool "$option" ||
    complain "tilewise.yaml: $variable is no option's"
done < <(grep -oE 'TILEWISE_[A-Z_]+' "$deploy/kubernetes/tilewise.yaml" | sort -u)

# ---- The units are ones that systemd takes.
if command -v systemd-analyze >/dev/null; then
  mkdir "$scratch/units"
  for program in scheduler worker; do
    sed "s|/usr/local/bin/tilewise-$program|${!program}|; s|^User=.*|User=root|" "$deploy/systemd/tilewise-$program.service" \
      >"$scratch/units/tilewise-$program.service"
    # Some machines' own units are broken: what counts is what it says of ours.
    said=$(systemd-analyze verify --man=no "$scratch/units/tilewise-$program.service" 2>&1 | grep "tilewise-$program" || true)
    [[ -z $said ]] || complain "$said"
  done
fi

# ---- The image has the packages that the programs load libraries from.
if command -v dpkg-query >/dev/null && grep -q '^VERSION_ID="12"' /etc/os-release; then
  for program in "$scheduler" "$worker" "$tool"; do
    while read -r library; do
      package=$(dpkg-query -S "$library" 2>/dev/null || dpkg-query -S "$(readlink -f "$library")" 2>/dev/null || true)
      package=${package%%:*}
      case $package in
        '' | libc6 | libgcc-s1) ;;
        *) grep -qw -- "$package" "$deploy/docker/Dockerfile" || complain "Dockerfile: $(basename "$program") needs $package" ;;
      esac
    done < <(ldd "$program" | awk 'NR == FNR {ours[$2] = 1; next} $1 in ours && $3 ~ /^\// {print $3}' \
      <(objdump -p "$program" | grep NEEDED) -)  # apt brings what those need in turn
  done
fi

# ---- A job: two nodes, which are this machine. A worker that dies comes again; the program's exit code is the job's.
mkdir "$scratch/bin" "$scratch/shared"
ln -s "$scheduler" "$scratch/bin/tilewise-scheduler"
ln -s "$worker" "$scratch/bin/tilewise-worker"
ln -s "$tool" "$scratch/bin/tilewise"
printf '#!/bin/sh\necho 127.0.0.1\n' >"$scratch/bin/hostname"
cat >"$scratch/bin/srun" <<'SRUN'
#!/usr/bin/env bash
# As many copies as --ntasks says; ends when all have.
for argument; do case $argument in --ntasks=*) n=${argument#*=} ;; --*) ;; *) break ;; esac; shift; done
for ((i = 0; i < n; ++i)); do "$@" & done
wait
SRUN
chmod +x "$scratch"/bin/*
export TILEWISE_MEMORY=64MiB TILEWISE_CORES=1 TILEWISE_LOG_LEVEL=warn TILEWISE_DEVICES=host:0
job() { (cd "$scratch" && PATH=$scratch/bin:$PATH SLURM_JOB_ID=$((RANDOM + $$)) SLURM_JOB_NUM_NODES=2 TILEWISE_JOB_DIR=$scratch/shared "$deploy/slurm/tilewise.sbatch" "$@"); }
out=$(job tilewise --json devices) || complain "the job failed"
[[ $(grep -o '"name":"w[0-9]*/host:0"' <<<"$out" | wc -l) == 2 ]] || complain "not two devices: $out"
# The port that a job would have is another's: of a job with the same number.
out=$(job "$deploy/slurm/tilewise.sbatch" tilewise --json devices 2>"$scratch/words") || complain "the job beside one failed"
[[ $(grep -o '"name":"w[0-9]*/host:0"' <<<"$out" | wc -l) == 2 ]] || complain "not two devices beside another job: $out"
grep -q "Address already in use" "$scratch/words" || complain "no port was another's: $(<"$scratch/words")"
# shellcheck disable=SC2016  # the job expands it
job bash -c '
  workers() { tilewise --json status | grep -o "\"role\":\"worker\",\"name\":\"[^\"]*" | sed "s|.*/||" | sort; }
  before=$(workers)
  kill -9 "${before%%[[:space:]]*}"
  for _ in {1..200}; do
    now=$(workers)
    [[ $now != "$before" && $(wc -w <<<"$now") == 2 ]] && exit 0
    sleep 0.1
  done
  exit 1' || complain "a worker that was killed did not come again"
code=0
job bash -c 'exit 7' || code=$?
[[ $code == 7 ]] || complain "exit code $code, not the program's"
code=0
job 2>/dev/null || code=$?
[[ $code == 2 ]] || complain "no program is a mistake: exit code $code"
[[ -z $(ls -A "$scratch/shared") ]] || complain "left behind: $(ls "$scratch/shared")"
for process in /proc/[0-9]*; do
  [[ $process == /proc/$$ || $(readlink "$process/cwd") != "$scratch" ]] || complain "left running: $(tr '\0' ' ' <"$process/cmdline")"
done
exit $failed
