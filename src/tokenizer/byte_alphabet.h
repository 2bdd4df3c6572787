// SPDX-License-Identifier: Apache-2.0
// The byte alphabet of byte-level BPE: vocabulary files spell each byte as one printable character,
// so that "\nHi" is written "ĊHi". Heddle keeps tokens as plain bytes and uses this only at the
// borders.
//
// Bytes 33-126, 161-172 and 174-255 spell themselves as the code point of that number; the other 68
// take the code points from 256 on, in byte order. Radford et al., "Language Models are
// Unsupervised Multitask Learners", 2019 (section 2.2 for the idea of byte-level BPE).
#pragma once

#include <string>
#include <string_view>

namespace heddle::tokenizer {

// Turns a spelling into bytes, appended to `bytes`. False, and nothing appended, when a character
// is not of the alphabet: such a token is literal text (many special tokens are).
[[nodiscard]] bool append_bytes_of_spelling(std::string_view spelling, std::string& bytes);

// The spelling of any bytes; the inverse of the above.
[[nodiscard]] std::string spell_bytes(std::string_view bytes);

}  // namespace heddle::tokenizer
