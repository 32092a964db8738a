#!/usr/bin/env bash
# slurm-init.sh NODES: starts munge, slurmctld and a slurmd on each node of the cluster in which it runs (slurm.bash), and
# ends when all nodes are idle; else it says why they are not.
set -euo pipefail

folder=/run/cluster/slurm
export SLURM_CONF=$folder/slurm.conf
mkdir -p "$folder/state" /run/munge
chmod 755 "$folder" /run/munge
head -c 1024 /dev/urandom >"$folder/munge.key"
chmod 400 "$folder/munge.key"
munged --force --key-file="$folder/munge.key" --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" \
    --seed-file="$folder/munged.seed" --socket=/run/munge/munge.socket.2

# Each node has a folder of its own below /run/cluster, as PMIx' and slurmd's files have the same names on all of them.
# The nodes have more cores than this machine: what is tested is who is where. A node that says nothing for 15 s is down; a
# job that is queued again may start after 11 s instead of two minutes.
cat >"$SLURM_CONF" <<CONF
ClusterName=cluster
SlurmctldHost=$(hostname)(10.77.0.254)
SlurmUser=root
AuthType=auth/munge
AuthInfo=cred_expire=10
StateSaveLocation=$folder/state
SlurmctldPidFile=$folder/slurmctld.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdPidFile=/run/cluster/%h/slurmd.pid
SlurmdLogFile=$folder/slurmd-%h.log
SlurmdSpoolDir=/run/cluster/%h/spool
TmpFS=/run/cluster/%h/tmp
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=sched_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SlurmdTimeout=15
MessageTimeout=15
TCPTimeout=2
KillWait=5
ReturnToService=2
MpiDefault=none
GresTypes=gpu
$(for ((i = 1; i <= $1; i++)); do echo "NodeName=node$i NodeAddr=10.77.0.$i CPUs=4 Gres=gpu:2"; done)
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
# To Slurm a GPU is a device file, whatever is behind it; nothing here opens it.
printf 'Name=gpu File=%s\n' /dev/null /dev/zero >"$folder/gres.conf"
# No cgroups: the nodes see none. Slurm 22.05 cannot say so.
plugin=disabled
[[ $(slurmd -V) != *' 22.'* ]] || plugin=cgroup/v1
echo "CgroupPlugin=$plugin" >"$folder/cgroup.conf"

slurmctld
for ((i = 1; i <= $1; i++)); do
    mkdir -p "/run/cluster/node$i/spool" "/run/cluster/node$i/tmp"
    /run/cluster/agent.sh "node$i" slurmd
done
for ((i = 0; i < 1200; i++)); do
    [[ $(sinfo -h -N -t idle | wc -l) -ne $1 ]] || exit 0
    sleep 0.1
done
grep -h "error: \|fatal: " "$folder"/slurm*.log | tail -n 3 | tr "\n" " "
exit 1
