// The same folder, started by Slurm, by Kubeflow's PyTorchJob or TrainJob, or by a JobSet of Kubernetes.
#include <fmt/format.h>

#include "formats/export/writer.hpp"

namespace plimsoll::formats {

namespace {

/// Started where the folder is, whose files the pods then have.
constexpr const char* kApplyWithFolder = "kubectl create configmap plan --from-file=. && kubectl apply -f job.yaml";

/// Slurm's days-hours:minutes:seconds.
std::string slurm_time(std::int64_t seconds) {
  return fmt::format("{}-{:02}:{:02}:{:02}", seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
}

const char* device_resource(const Writing& w) { return w.plan.cluster.accelerator.is_amd() ? "amd.com/gpu" : "nvidia.com/gpu"; }

/// A pod's template that runs the folder, mounted from the config map "plan"; `places` are variables that tell run.sh which node the pod is, and
/// `restart_policy` the line of one, where the job does not set it itself.
std::string pod_of(const Writing& w, const std::string& places, const char* restart_policy, const std::string& margin) {
  const std::string text = fmt::format(R"(template:
  spec:
{}    containers:
      - name: pytorch
        image: IMAGE  # one with the program and its packages
        workingDir: /workspace/plan
        command: ["bash", "-c", "{} bash run.sh"]
        resources:
          limits: {{"{}": {}}}
        volumeMounts:
          - {{name: plan, mountPath: /workspace/plan}}
          - {{name: shm, mountPath: /dev/shm}}
    volumes:
      - {{name: plan, configMap: {{name: plan}}}}
      - {{name: shm, emptyDir: {{medium: Memory}}}}  # NCCL's buffers between processes: Kubernetes' 64 MiB are too few
)",
                                       restart_policy, places, device_resource(w), w.per_node());
  std::string indented;
  for (std::size_t at = 0, end; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    indented += margin + text.substr(at, end - at + 1);
  }
  return indented;
}

}  // namespace

void write_sbatch(const Writing& w) {
  const RunLength& length = w.plan.length;
  w.file("job.sbatch", "#!/bin/bash\n" + fmt::format("#SBATCH --job-name={}\n#SBATCH --output=%x-%j.out\n", length.name) +
                           (length.seconds > 0 ? "#SBATCH --time=" + slurm_time(length.seconds) + "\n" : std::string()) +
                           fmt::format("#SBATCH --nodes={}\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:{}\n#SBATCH --exclusive\n",
                                       w.nodes(), w.per_node()) +
                           w.head() +
                           "export MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
                           "export MASTER_PORT=29500\n"
                           "# run.sh starts one launcher per node, which starts a process per GPU\n"
                           "srun --ntasks-per-node=1 bash -c 'NODE_RANK=$SLURM_NODEID bash run.sh'\n");
  w.out.command = "sbatch job.sbatch";
}

/// The operator counts pods in RANK: the master is 0, the first worker 1 (its label replica-index begins at 0 again).
void write_pytorchjob(const Writing& w) {
  const auto replica = [&](const char* kind, std::int64_t count) {
    return fmt::format("    {}:\n      replicas: {}\n      restartPolicy: OnFailure\n", kind, count) +
           pod_of(w, "NODE_RANK=${RANK:-0}", "", "      ");
  };
  std::string text = w.head() + "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: " + w.plan.length.name + "\nspec:\n  nprocPerNode: \"" +
                     std::to_string(w.per_node()) + "\"\n  pytorchReplicaSpecs:\n";
  text += replica("Master", 1);
  if (w.nodes() > 1) text += replica("Worker", w.nodes() - 1);
  w.file("job.yaml", text);
  w.out.command = kApplyWithFolder;
}

/// A JobSet's pods are called JOBSET-REPLICATEDJOB-JOB-POD in a service of the JobSet's own name; Kubernetes numbers an indexed job's in JOB_COMPLETION_INDEX.
void write_jobset(const Writing& w) {
  const std::string& name = w.plan.length.name;
  w.file("job.yaml", w.head() + fmt::format(R"(apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: {0}
spec:
  replicatedJobs:
    - name: node
      replicas: 1
      template:
        spec:
          parallelism: {1}
          completions: {1}
          backoffLimit: 0  # a run that lost a node starts anew as a whole
)",
                                            name, w.nodes()) +
                         pod_of(w, fmt::format("MASTER_ADDR={0}-node-0-0.{0} NODE_RANK=$JOB_COMPLETION_INDEX", name), "    restartPolicy: Never\n", "          "));
  w.out.command = kApplyWithFolder;
}

/// Kubeflow Trainer 2 says to pods in torchrun's own variables (PET_*) which node they are. What may be mounted differs from release to release
/// (podTemplateOverrides until 2.1, runtimePatches since 2.2), so the folder lies in the image.
void write_trainjob(const Writing& w) {
  w.file("job.yaml", w.head() + fmt::format(R"(apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: {}
spec:
  runtimeRef:
    name: torch-distributed
  trainer:
    image: IMAGE  # one with the program, its packages and this folder in /workspace/plan
    command:
      - bash
      - -c
      - cd /workspace/plan && MASTER_ADDR=$PET_MASTER_ADDR MASTER_PORT=$PET_MASTER_PORT NODE_RANK=$PET_NODE_RANK bash run.sh
    numNodes: {}
    resourcesPerNode:
      limits: {{"{}": {}}}
)",
                                            w.plan.length.name, w.nodes(), device_resource(w), w.per_node()));
  w.out.command = "kubectl apply -f job.yaml";
}

}  // namespace plimsoll::formats
