// A project outside plimsoll: the public C++ interface of the installed package.
#include <cstdio>
#include <plimsoll/plimsoll.hpp>

int main() {
  const plimsoll::Model model = plimsoll::load_model("llama-3.1-8b");
  if (model.parameters() != 8030261248) return 1;   // 128256·4096·2 + 32·218112000 + 4096
  plimsoll::Strategy strategy;
  strategy.data_parallel = plimsoll::DataParallel::fsdp;
  strategy.micro_batch = 2;
  strategy.seq_len = 8192;
  const plimsoll::Report report = plimsoll::estimate(model, plimsoll::parse_cluster("8xmi300x"), strategy);
  std::fputs(plimsoll::to_text(report).c_str(), stdout);
  // Eight ranks share fp32 states of 16 bytes per parameter: no rank holds less than that.
  return report.worst_rank().memory.allocated.count > 16 * model.parameters() / 8 ? 0 : 1;
}
