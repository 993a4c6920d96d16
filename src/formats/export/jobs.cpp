// The same folder, started by Slurm or by a PyTorchJob of Kubeflow.
#include <fmt/format.h>

#include "formats/export/writer.hpp"

namespace plimsoll::formats {

namespace {

/// Slurm's days-hours:minutes:seconds.
std::string slurm_time(std::int64_t seconds) {
  return fmt::format("{}-{:02}:{:02}:{:02}", seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
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

void write_pytorchjob(const Writing& w) {
  const auto replica = [&](const char* kind, std::int64_t count) {
    return fmt::format(R"(    {}:
      replicas: {}
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: IMAGE  # one with the program and its packages
              workingDir: /workspace/plan
              command: ["bash", "run.sh"]
              env:
                - name: NODE_RANK
                  valueFrom:
                    fieldRef: {{fieldPath: "metadata.labels['training.kubeflow.org/replica-index']"}}
              resources:
                limits: {{"{}": {}}}
              volumeMounts:
                - {{name: plan, mountPath: /workspace/plan}}
                - {{name: shm, mountPath: /dev/shm}}
          volumes:
            - {{name: plan, configMap: {{name: plan}}}}
            - {{name: shm, emptyDir: {{medium: Memory}}}}  # NCCL's buffers between processes: Kubernetes' 64 MiB are too few
)",
                       kind, count, w.plan.cluster.accelerator.is_amd() ? "amd.com/gpu" : "nvidia.com/gpu", w.per_node());
  };
  std::string text = w.head() + "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: " + w.plan.length.name + "\nspec:\n  nprocPerNode: \"" +
                     std::to_string(w.per_node()) + "\"\n  pytorchReplicaSpecs:\n";
  text += replica("Master", 1);
  if (w.nodes() > 1) text += replica("Worker", w.nodes() - 1);
  w.file("job.yaml", text);
  w.out.command = "kubectl create configmap plan --from-file=. && kubectl apply -f job.yaml";
}

}  // namespace plimsoll::formats
