// transformers' scripts under examples/pytorch/text-classification: run_glue.py, run_classification.py, run_xnli.py.
#pragma once

#include <string>

#include "formats/foreign/reading.hpp"

namespace plimsoll::formats {

/// Whether a program is one of them, by the name of its file.
bool is_text_classifier(const std::string& program);

/// Reads such a script's flags: a sequence classifier by the Trainer, whose classes are the benchmark's. Throws Error where the data alone
/// knows how many there are, and nobody says it.
void read_text_classifier(Reading& reading, const Node& flags, const std::string& program);

}  // namespace plimsoll::formats
