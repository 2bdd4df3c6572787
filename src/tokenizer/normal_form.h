// SPDX-License-Identifier: Apache-2.0
// The four Unicode normal forms (Unicode Standard Annex 15), from utf8proc's tables.
//
// utf8proc_map() sorts a run of n combining marks in O(n^2), so a prompt of 80 kB can take seconds.
// Here the text is normalised in runs that end where no character interacts with the next one, and
// the marks of a run are sorted in linear time. The result is the same.
//
// Cost: O(bytes). A look at the text proves most of it normal already (about 1 GB/s for ASCII); the
// rest takes about 60 MB/s. Memory: one run, of a few kB unless the text has a longer run of marks.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tokenizer/cancellation.h"

namespace heddle::tokenizer {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// True when `text` is certainly in the form already; false says nothing.
[[nodiscard]] bool is_surely_normal(std::string_view text, NormalForm form);

// `text` is valid UTF-8.
[[nodiscard]] std::string to_normal_form(std::string_view text, NormalForm form);

// False: the rest of the text is not needed.
using PartFunction = std::function<bool(std::string_view part)>;

// Appends the normal form of `text` to `out` and shows it to `on_part` (may be empty) a few kB at a
// time. False when `on_part` or `poll` ended it early.
[[nodiscard]] bool append_normal_form(std::string_view text, NormalForm form, std::string& out,
                                      CancellationPoll& poll, const PartFunction& on_part);

// Characters that NFC neither changes nor combines with the character before them. Conservative:
// the scripts most text is written in, checked against utf8proc by the test.
[[nodiscard]] bool is_inert_under_nfc(char32_t code_point);

}  // namespace heddle::tokenizer
