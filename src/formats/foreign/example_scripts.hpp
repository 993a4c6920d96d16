// transformers' scripts under examples/pytorch whose Trainer trains another head than a causal language model's: classes of texts, of
// tokens and of images, answers to questions, masked words, pairs of texts.
#pragma once

#include <string>

#include "formats/foreign/reading.hpp"

namespace plimsoll::formats {

/// Whether a program is one of them, by the name of its file.
bool is_example_script(const std::string& program);

/// Reads such a script's flags: its lengths and classes with its own defaults, and TrainingArguments'. Throws Error where the data alone
/// knows how many classes there are or how long texts become, and nobody says it.
void read_example_script(Reading& reading, const Node& flags, const std::string& program);

/// What a script under examples/pytorch trains that is not modelled: "a masked autoencoder" of run_mae.py; nullptr: it is none of them.
const char* unmodelled_example(const std::string& program);

}  // namespace plimsoll::formats
