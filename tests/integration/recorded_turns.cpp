// SPDX-License-Identifier: Apache-2.0
#include "integration/recorded_turns.h"

#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "support/test_data.h"
#include "tokenizer/tokenizer.h"

namespace heddle::testing {

std::vector<std::vector<std::vector<TokenId>>> recorded_turns(int64_t per_file) {
  const auto tokenizer = tokenizer::load_tokenizer(repository_path("models/heddle-tiny")).value();
  std::vector<std::vector<std::vector<TokenId>>> turns;
  for (const char* name : {"story", "recall", "skill", "math"}) {
    std::ifstream file(repository_path(fmt::format("tests/golden/heddle_tiny/{}.jsonl", name)));
    auto& of_file = turns.emplace_back();
    std::string line;
    while (std::ssize(of_file) < per_file && std::getline(file, line)) {
      const auto entry = nlohmann::json::parse(line);
      std::string text;
      for (const auto& message : entry["messages"]) {
        text += fmt::format("<|im_start|>{}\n{}<|im_end|>\n", message["role"].get<std::string>(),
                            message["content"].get<std::string>());
      }
      text += fmt::format("<|im_start|>assistant\n{}<|im_end|>\n",
                          entry["reference_output"].get<std::string>());
      of_file.push_back(tokenizer->encode(text).value());
    }
  }
  return turns;
}

}  // namespace heddle::testing
