// SPDX-License-Identifier: Apache-2.0
// Normalizer changes text before it is split: the "normalizer" of a tokenizer file, as a flat list
// of steps. The most frequent steps are the Unicode normal forms.
//
// Threading: a Normalizer is built by one thread, then immutable and thread-safe with one
// RegexScratch per call; the free functions have no state.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/cancellation.h"
#include "tokenizer/regex.h"

namespace heddle::tokenizer {

// The four normal forms of Unicode Standard Annex 15, computed with utf8proc's tables.
//
// utf8proc_map() sorts a run of n combining marks in O(n^2), so a prompt of 80 kB can take seconds.
// This implementation normalises the text in runs that end where no character interacts with the
// next one, and sorts the marks of a run in linear time. The result is the same.
//
// Cost: O(bytes). A quick check shows that most text is already normal (about 1 GB/s for ASCII).
// Memory: one run, a few kB unless the text has a longer run of marks.
enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// True if `text` is certainly in the form already; false means that it is not known.
[[nodiscard]] bool is_surely_normal(std::string_view text, NormalForm form);

// `text` must be valid UTF-8.
[[nodiscard]] std::string to_normal_form(std::string_view text, NormalForm form);

// Receives a part of the text; returns false if the rest is not needed.
using PartFunction = std::function<bool(std::string_view part)>;

// Appends the normal form of `text` to `out` and passes it to `on_part` (may be empty), a few kB at
// a time. Returns false if `on_part` or `poll` ended the call early.
[[nodiscard]] bool append_normal_form(std::string_view text, NormalForm form, std::string& out,
                                      CancellationPoll& poll, const PartFunction& on_part);

// Whether NFC neither changes the character nor combines it with the character before it. True only
// for the scripts that most text uses; the test checks them against utf8proc.
[[nodiscard]] bool is_inert_under_nfc(char32_t code_point);

struct PrependStep {  // prepends `text` to every text that is not empty
  std::string text;
};

struct ReplaceStep {  // replaces every match
  Regex pattern;
  std::string content;
};

struct LowercaseStep {};  // simple case mapping, one character at a time

struct StripStep {  // removes white space at the ends
  bool left = true;
  bool right = true;
};

struct StripAccentsStep {};  // drops combining marks; used after NFD

using NormalizerStep =
    std::variant<NormalForm, PrependStep, ReplaceStep, LowercaseStep, StripStep, StripAccentsStep>;

class Normalizer {
 public:
  template <typename Step>
  void add(Step step) {
    steps_.emplace_back(std::in_place_type<Step>, std::move(step));
  }

  // Returns the normalised text: `text` itself if nothing changes, otherwise a view of `buffer`.
  // None if `poll` or `on_part` ended the call early.
  //
  // `on_part` (may be empty) receives the result in parts if the last step is a normal form that
  // changes the text; all other steps are finished before. It returns false if the rest is not
  // needed.
  [[nodiscard]] std::optional<std::string_view> apply(std::string_view text, std::string& buffer,
                                                      RegexScratch& scratch, CancellationPoll& poll,
                                                      const PartFunction& on_part) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace heddle::tokenizer
