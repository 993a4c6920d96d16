// diffusers' training scripts: examples/dreambooth/train_dreambooth_*.py.
#pragma once

#include <string>

#include "formats/foreign/reading.hpp"

namespace plimsoll::formats {

/// Which of them a program is, by the name of its file.
enum class DiffusersScript : std::uint8_t { none, lora_flux, flux, lora_sd3, sd3 };
DiffusersScript diffusers_script_of(const std::string& program);

/// Reads a script's flags. Throws Error: a flag that its parser does not have; what is not modelled.
void read_diffusers_script(Reading& reading, const Node& flags, DiffusersScript script);

}  // namespace plimsoll::formats
