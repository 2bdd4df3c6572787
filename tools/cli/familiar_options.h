// SPDX-License-Identifier: Apache-2.0
// The options that people know from SGLang, vLLM, TGI and llama.cpp's server, where Heddle has
// another name for them or none. Three kinds: a spelling of an option that Heddle has, also with a
// value of its own, an option that is taken because its value asks for what Heddle does anyway, and
// one that is an error with advice. Spellings that Heddle shares with one of them stand where the
// option is declared.
//
// Threading: free functions over a table.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

namespace heddle::tools {

struct FamiliarOption {
  enum class Kind : uint8_t {
    // Another spelling of the option `means`, unless the subcommand reserves it
    // (Options::reserve()).
    kSpelling,
    kFlag,      // taken; `means` says why it changes nothing
    kValue,     // taken with one of the values `taken`, or with any without these; likewise
    kOptional,  // taken with nothing or with one of the values `taken`; likewise
    kNumbers,   // taken with one number or several; likewise
    // Stands for these words of a command line: "--log-level debug"; {} in them is the value.
    kWords,
    kSampling,  // the option of that name where tokens are drawn; in `heddle serve` the field
                // `means` of --preferred-sampling-params
    kRefused,   // `means` is the remedy
  };

  std::string_view name;  // "--tp", "-np"
  Kind kind = Kind::kRefused;
  std::string_view means;
  std::string_view taken = {};  // "cpu auto"
};

[[nodiscard]] std::span<const FamiliarOption> familiar_options();

// Null for what no well-known server has. `name` begins with its dashes.
[[nodiscard]] const FamiliarOption* find_familiar_option(std::string_view name);

// The words of a command line with those of Heddle in the place of kWords and kSampling, and a note
// for each; `has_option` says whether the subcommand has an option of a name. Error:
// kInvalidArgument for sampling fields given both ways.
[[nodiscard]] Result<std::vector<std::string>> translated_words(
    const std::vector<std::string>& words,
    const std::function<bool(const std::string&)>& has_option);

// The note for an accepted option: "--max-model-len is --context-length here".
[[nodiscard]] std::string note_on(const FamiliarOption& option);

}  // namespace heddle::tools
