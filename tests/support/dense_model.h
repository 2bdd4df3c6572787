// SPDX-License-Identifier: Apache-2.0
// dense_model(): the folder of a small model that has attention in every layer. heddle-tiny, the
// model of most tests, is a hybrid.
#pragma once

#include <filesystem>

namespace heddle::testing {

// A Qwen2 of three layers with biases, 64 channels, four query heads, two heads of keys and values,
// and a vocabulary of 320, without a tokenizer. Its bf16 weights depend only on their names; those
// of matrices have a standard deviation of 0.15, so that logits differ between tokens. The first
// call writes the folder; it is removed when the program ends. Thread-safe.
const std::filesystem::path& dense_model();

}  // namespace heddle::testing
