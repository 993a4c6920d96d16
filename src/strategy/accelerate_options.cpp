// Accelerate's keys of precision, as its launcher and its configuration file spell them (accelerate/commands/launch.py, config/cluster.py).
#include <string>

#include "strategy/msamp.hpp"
#include "strategy/options.hpp"

namespace plimsoll::strategy {

namespace {

enum class Backend : std::uint8_t { te, ao, msamp };

const Names<Backend>& backend_names() {
  static const Names<Backend> names = {{"te", Backend::te}, {"ao", Backend::ao}, {"msamp", Backend::msamp}};
  return names;
}

const Names<Precision>& opt_level_names() {
  static const Names<Precision> names = {{"O1", Precision::msamp_o1}, {"O2", Precision::msamp_o2}};
  return names;
}

/// MS-AMP at `level`, in the place of "fp8", which said no more than 16-bit training with 8-bit products.
void set_msamp(Setting& x, Precision level) {
  if (x.s.precision == Precision::bf16 && x.s.low_precision == LowPrecision::fp8) x.retract(x.s.precision, Precision::automatic);
  if (is_msamp(x.s.precision)) x.retract(x.s.precision, Precision::automatic);  // the backend alone says the usual level
  x.retract(x.s.low_precision, LowPrecision::none);
  x.put(x.s.precision, level);
}

void set_mixed_precision(Setting& x) {
  const std::string& text = x.value.text();
  if (text == "no") return put_precision(x, Precision::fp32);
  if (text == "bf16") return put_precision(x, Precision::bf16);
  if (text == "fp16") return put_precision(x, Precision::fp16);
  if (text != "fp8") x.value.expected("no, fp16, bf16 or fp8");
  if (is_msamp(x.s.precision)) return;
  x.put(x.s.low_precision, LowPrecision::fp8);
  put_precision(x, Precision::bf16);
}

/// MSAMPRecipeKwargs: O2 unless said. Which scales torchao has is left to fp8_recipe.
void set_fp8_backend(Setting& x) {
  const Backend backend = x.named(backend_names());
  if (backend == Backend::msamp) {
    if (!is_msamp(x.s.precision)) set_msamp(x, Precision::msamp_o2);
    return;
  }
  x.put(x.s.low_precision, LowPrecision::fp8);
  if (backend == Backend::te) x.put(x.s.fp8_scaling, Fp8Scaling::delayed);
}

void set_opt_level(Setting& x) { set_msamp(x, x.named(opt_level_names())); }

}  // namespace

const std::vector<Entry>& accelerate_entries() {
  static const std::vector<Entry> table = {
      {"mixed_precision", "no, fp16, bf16, fp8", "Accelerate", set_mixed_precision},
      {"fp8_backend", "te, ao, msamp", "whose 8-bit products Accelerate puts in", set_fp8_backend},
      {"fp8_opt_level", "O1, O2", "MS-AMP's optimization level; O2", set_opt_level},
      {"fp8_config.backend", "TE, AO, MSAMP", "fp8_backend in Accelerate's configuration file", set_fp8_backend},
      {"fp8_config.optimization_level", "O1, O2", "fp8_opt_level in Accelerate's configuration file", set_opt_level},
  };
  return table;
}

}  // namespace plimsoll::strategy
