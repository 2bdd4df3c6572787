// SPDX-License-Identifier: Apache-2.0
// dense_model: a small model without recurrent states, for tests that need one beside heddle-tiny.
#pragma once

#include <filesystem>

namespace heddle::testing {

// A folder with a Qwen2 of three layers with biases, 64 channels, four query heads, two heads of
// keys and values, and a vocabulary of 320, without a tokenizer. Its bf16 weights are a pure
// function of their names, and as wide as in a trained model, so that its logits differ between
// tokens. The first call writes it; it is removed when the program ends. Thread-safe.
const std::filesystem::path& dense_model();

}  // namespace heddle::testing
