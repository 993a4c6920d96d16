// Which releases run, as people and files say it: options, pip's requirements, the pip lines of scripts.
#pragma once

#include <string>
#include <vector>

#include "formats/foreign/reading.hpp"

namespace plimsoll::formats {

/// "transformers=4.46.3" or "transformers==4.46.3" of an option. Throws Error: another form, a package whose releases are not told apart.
void read_release_options(Reading& reading, const std::vector<std::string>& options);

/// The lines of pip's requirements, or of `pip freeze`: what is pinned of the programs that are known. False: the text is no such thing.
bool read_requirements(Reading& reading, const std::string& text, const std::string& where);

/// The pinned packages of a `pip install` line; other commands say nothing.
void read_pip_line(Reading& reading, const std::vector<Node>& words);

/// The keys releases.PACKAGE of what was stated.
void settle_releases(Reading& reading);

}  // namespace plimsoll::formats
