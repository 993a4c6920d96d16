// The tables of other calculators, printed as they print them.
#include <fmt/core.h>

#include "plimsoll/report.hpp"
#include "report/layout.hpp"

namespace plimsoll {

std::string to_text(const AccelerateView& view) {
  std::vector<std::vector<std::string>> rows{{"dtype", "model", "gradients", "backward pass", "optimizer step"}};
  for (const AccelerateRow& row : view.rows) {
    std::vector<std::string> cells{row.dtype};
    for (const std::int64_t bytes : {row.model, row.gradients, row.backward, row.step})
      cells.push_back(accelerate_bytes(static_cast<double>(bytes)));
    rows.push_back(std::move(cells));
  }
  return "What `accelerate estimate-memory` says of training with Adam (its MB is MiB, its GB is GiB):\n\n" + columns(rows) +
         "\nfloat32 size = " + view.derivation +
         "\nIt counts model states only: no activations, loss, allocator, communicators or sharding. `plimsoll estimate` without --view "
         "does.\n";
}

std::string to_text(const DeepSpeedView& view) {
  const auto gib = [](std::int64_t bytes) { return fmt::format("{:.2f}GB", Bytes(bytes).gib()); };
  std::vector<std::vector<std::string>> rows{{"options", "per CPU", "per GPU"}};
  for (const DeepSpeedRow& row : view.rows)
    rows.push_back({fmt::format("offload_param={}, offload_optimizer={}, zero_init={}", row.offload_param ? "cpu" : "none",
                                row.offload_optimizer ? "cpu" : "none", row.zero_init ? 1 : 0),
                    gib(row.per_cpu), gib(row.per_gpu)});
  return fmt::format("What DeepSpeed's ZeRO-3 estimator says for {} node{} of {} GPUs (its GB is GiB):\n\n", view.nodes,
                     view.nodes == 1 ? "" : "s", view.gpus_per_node) +
         columns(rows) +
         fmt::format(
             "\n{} parameters, largest layer {} parameters.\n"
             "It counts model states only; buckets, live parameters and activations come on top. `plimsoll estimate` without --view "
             "does.\n",
             with_thousands(view.parameters), with_thousands(view.largest_layer));
}

}  // namespace plimsoll
