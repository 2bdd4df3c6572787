// SPDX-License-Identifier: Apache-2.0
// What a SentencePiece model does to a text before it is cut into pieces, as far as the bytes of a
// text are to be counted. The library does not tell.
//
// Threading: a free function without state. Cost: O(pieces of the model).
#pragma once

#include <string_view>

namespace heddle::tokenizer {

// True when no byte of a text is lost: nothing is replaced and no white space is taken away, only
// marked. False as well when `model`, the serialised file, is not understood.
[[nodiscard]] bool normalizer_keeps_text(std::string_view model);

// True for a BPE model, which merges neighbouring pieces and nothing else.
[[nodiscard]] bool is_bpe_model(std::string_view model);

}  // namespace heddle::tokenizer
