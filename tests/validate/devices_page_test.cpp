// docs/devices.md shows what the program says. What it is held against stands in data/device_rows.json: peaks that PyTorch's own caching
// allocator reported on a CUDA runtime without a GPU that answers as such a device.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "devices.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/memory.hpp"
#include "plimsoll/hardware.hpp"

namespace plimsoll {
namespace {

/// The allocated bytes of a step of a shipped model in mixed precision, 8 × 1024 tokens of GPT-2 and so on.
std::string allocated(const std::string& device, const std::string& model_name, const std::string& precision, int micro_batch, int length) {
  const Model model = load_model(model_name);
  const Cluster cluster = parse_cluster("1x" + device);
  Strategy said;
  set_options(said, {{"framework", "transformers"},
                     {"precision", precision},
                     {"param_dtype", "fp32"},
                     {"attention", "sdpa"},
                     {"optimizer_impl", "foreach"},
                     {"clip_grad_norm", "false"},
                     {"cudnn_attention", "false"},
                     {"torch", "2.15"},
                     {"micro_batch", std::to_string(micro_batch)},
                     {"seq_len", std::to_string(length)}});
  if (model_name == "t5-large") set_options(said, {{"tgt_len", "128"}});
  const Strategy strategy = resolve(said, model, cluster);
  return with_thousands(play_memory(program::lower_transformers(program::on_cluster(cluster, model, strategy)), {}).peak_allocated.count);
}

// The table of docs/devices.md. AMD's numbers stand beside no measured ones.
TEST(DevicesPage, ShowsWhatIsAllocated) {
  std::ifstream file(std::string(PLIMSOLL_SOURCE_DIR) + "/docs/devices.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const std::vector<std::array<std::string, 3>> devices{
      {"V100", "v100-sxm2", "fp16"},     {"T4", "t4", "fp16"},         {"A10", "a10", "bf16"},
      {"A100", "a100-80gb-sxm", "bf16"}, {"H100", "h100-sxm", "bf16"}, {"B200", "b200", "bf16"},
      {"MI250X", "mi250x", "bf16"},      {"MI300X", "mi300x", "bf16"}, {"MI355X", "mi355x", "bf16"}};
  for (const auto& [title, device, bits] : devices) {
    const std::string precision = "amp_" + bits;
    const std::string line = "| " + title + " | " + bits + " | " + allocated(device, "gpt2", precision, 8, 1024) + " | " +
                             allocated(device, "llama-3.2-1b", precision, 2, 2048) + " | " +
                             allocated(device, "t5-large", precision, 4, 512) + " |";
    EXPECT_NE(page.find(line), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace plimsoll
