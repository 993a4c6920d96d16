#include "program/target_device.hpp"

#include "plimsoll/error.hpp"

namespace plimsoll::program {
namespace {

/// Programs are read off architectures, so an unknown one has none.
void read_architecture(const Accelerator& accelerator, TargetDevice& device) {
  device.capability = accelerator.capability();
  if (device.capability > 0) return;
  device.gfx = accelerator.target;
  if (!device.is_gfx("gfx"))
    refuse("what frameworks run on '" + accelerator.target + "' is not known: a program is lowered for an architecture",
           accelerator.name + ".target", "\"sm_90\" or \"gfx942\", as its vendor calls it");
}

[[noreturn]] void lacks(const Accelerator& accelerator, const char* key, const char* what) {
  refuse("the file of " + accelerator.name + " does not say how " + what + ", which decides what kernels allocate", key,
         "a number with its provenance and source, as in the shipped files");
}

}  // namespace

bool is_processor(const Accelerator& accelerator) { return accelerator.vendor == "CPU"; }

TargetDevice target_device(const Cluster& cluster) {
  const Accelerator& accelerator = cluster.accelerator;
  TargetDevice device;
  if (is_processor(accelerator)) {
    Cluster reference = cluster;
    reference.accelerator = load_accelerator(kProgramOfProcessors);
    device = target_device(reference);
    device.memory = accelerator.memory_usable.value.count;
    return device;
  }
  read_architecture(accelerator, device);
  if (accelerator.threads_per_unit.value == 0) lacks(accelerator, "compute.threads_per_unit", "many threads a compute unit holds");
  if (accelerator.shared_memory.value.count == 0) lacks(accelerator, "compute.shared_memory", "much shared memory a block can have");
  device.units = accelerator.compute_units;
  device.threads_per_unit = accelerator.threads_per_unit.value;
  device.shared_memory = accelerator.shared_memory.value.count;
  device.memory = accelerator.memory_usable.value.count;
  device.fast_domain = cluster.node.gpus;
  return device;
}

}  // namespace plimsoll::program
