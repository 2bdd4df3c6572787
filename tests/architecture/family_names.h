// SPDX-License-Identifier: Apache-2.0
// A family of models is named in its folder, src/models/NAME/, and in one line of the registry, and
// nowhere else in code: adding one touches only these. Comments may name any family, and so may
// tests, benchmarks and fuzzers.
//
// Threading: values; single-threaded test code. Reads files, never writes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::architecture {

// C++ source without its comments: line breaks stay, literals too.
std::string without_comments(std::string_view source);

// Whether names may have it: a letter, a digit or '_'.
bool is_word(char letter);

// A word that means something else in one file: the path, as it begins, and the word.
struct OtherMeaning {
  std::string path;
  std::string word;
};

// Every place in include/, src/ and tools/ that spells the name of a folder of src/models/ other
// than layers/, in whatever case and with or without its underscores: "file:line: names qwen2". The
// registry's line for a family, "family(qwen2)", does not count.
std::vector<std::string> family_name_violations(const std::filesystem::path& repository,
                                                const std::vector<OtherMeaning>& other_meanings);

}  // namespace heddle::architecture
