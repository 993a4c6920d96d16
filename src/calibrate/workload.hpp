// Something to be timed: what it is, how it is set up, and how one run of it is issued.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/backend.hpp"
#include "plimsoll/explain.hpp"

namespace plimsoll::calibrate {

class Workload {
 public:
  virtual ~Workload() = default;
  /// What is measured, without times.
  const Sample& sample() const { return sample_; }
  /// Share of the time budget, against 1 of others.
  double weight() const { return weight_; }
  /// Runs per sample: `seconds` of the sample are of one of them.
  virtual double parts() const { return 1; }

  virtual void prepare(Backend& backend) = 0;
  /// Issues one run with that set of inputs.
  virtual void run(Backend& backend, std::size_t set) = 0;
  virtual void finish(Backend& backend) = 0;

 protected:
  Sample sample_;
  double weight_ = 1;
};

using Workloads = std::vector<std::unique_ptr<Workload>>;

/// A kernel of the table with random inputs, several sets of them.
std::unique_ptr<Workload> table_workload(const Kernel& kernel, const Sizes& sizes, const DeviceShape& device, Sample sample, double weight);

/// What is measured of a pass of attention, named by the library that runs it, or by our own kernels.
Sample attention_sample(const Attention& attention, Backend& backend);

/// Whether a product of the table rounds its fp32 operands.
bool multiplies_as_tf32(const Kernel& kernel);

/// Everything that the constants of a machine are fitted to, small before large. No buffer is larger than `largest`.
Workloads machine_workloads(Backend& backend, std::int64_t largest);
/// The distinct kernels of one steady step, each on operands as cold as it finds them in the step.
Workloads program_workloads(const PlayableRank& rank, Backend& backend);

/// A kernel, or a library's product of a type, whose answer is wrong: it is not measured.
struct WrongKernel {
  std::string kernel, type;
  std::string where;  ///< the worst element of its answer

  std::string text() const;
  /// Whether a sample would be of it.
  bool ran(const Sample& sample) const;
};

/// Runs every kernel of the table that the device has on a small problem, and products through every library, and holds the answers
/// against the reference: the matrix units' kernels that are wrong. Throws Error where another is, which no device does that works.
std::vector<WrongKernel> check_kernels(Backend& backend);

}  // namespace plimsoll::calibrate
