// SPDX-License-Identifier: Apache-2.0
// The four Unicode normal forms, through utf8proc. Unicode Standard Annex 15.
//
// Cost: a look at the text proves most of it normal already (about 1 GB/s for ASCII); the rest
// takes utf8proc's 35 MB/s.
#pragma once

#include <string>
#include <string_view>

namespace heddle::tokenizer {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// True when `text` is certainly in the form already; false says nothing.
[[nodiscard]] bool is_surely_normal(std::string_view text, NormalForm form);

// `text` is valid UTF-8.
[[nodiscard]] std::string to_normal_form(std::string_view text, NormalForm form);

// Characters that NFC neither changes nor combines with a neighbour. Conservative: the scripts most
// text is written in, checked against utf8proc by the test.
[[nodiscard]] bool is_inert_under_nfc(char32_t code_point);

}  // namespace heddle::tokenizer
