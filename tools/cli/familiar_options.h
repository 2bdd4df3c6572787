// SPDX-License-Identifier: Apache-2.0
// Options of SGLang, vLLM, TGI and llama.cpp's server that Heddle has by another name or not at
// all. Each is one of three kinds: another spelling of one of Heddle's options, perhaps with a
// fixed value; an option that is accepted because its value requests what Heddle does anyway; or
// one that is an error with advice. Spellings that such a server shares with Heddle are declared
// with the option itself.
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
    // Another spelling of the option `means`, unless the subcommand reserves the spelling
    // (Options::reserve()).
    kSpelling,
    kFlag,   // accepted; `means` says why it changes nothing
    kValue,  // accepted with a value in `taken`, or with any if that is empty; `means` says why it
             // changes nothing
    kOptional,  // accepted without a value or with one in `taken`; `means` says why it changes
                // nothing
    kNumbers,   // accepted with one number or several; `means` says why it changes nothing
    // Replaced by the words in `means`, as "--log-level debug"; {} in them is the value.
    kWords,
    kSampling,  // the sampling option of that name, if the subcommand draws tokens; for `heddle
                // serve` the field `means` of --preferred-sampling-params
    kRefused,   // an error; `means` is the remedy
  };

  std::string_view name;  // name with its dashes, as "--tp" or "-np"
  Kind kind = Kind::kRefused;
  std::string_view means;
  std::string_view taken = {};  // accepted values, separated by spaces, as "cpu auto"
};

[[nodiscard]] std::span<const FamiliarOption> familiar_options();

// The option of this name, which begins with its dashes; null if no well-known server has it.
[[nodiscard]] const FamiliarOption* find_familiar_option(std::string_view name);

// A command line in which options of the kinds kWords and kSampling are replaced by Heddle's, with
// a note for each. `has_option` returns whether the subcommand has an option of that name. Error:
// kInvalidArgument for sampling fields that are given in both ways.
[[nodiscard]] Result<std::vector<std::string>> translated_words(
    const std::vector<std::string>& words,
    const std::function<bool(const std::string&)>& has_option);

// The note for an accepted option, as "--max-model-len is --context-length here".
[[nodiscard]] std::string note_on(const FamiliarOption& option);

}  // namespace heddle::tools
