// SPDX-License-Identifier: Apache-2.0
#include "chat/role_boundaries.h"

#include <string_view>

#include <nlohmann/json.hpp>

namespace heddle::chat {

std::optional<TokenId> find_role_token(const ChatTemplate& chat_template,
                                       const tokenizer::Tokenizer& tokenizer) {
  const nlohmann::ordered_json question = {{{"role", "user"}, {"content", "Hi"}}};
  const auto bare = chat_template.render(question, nullptr, false, nullptr);
  const auto prompted = chat_template.render(question, nullptr, true, nullptr);
  if (!bare.ok() || !prompted.ok() || !prompted->starts_with(*bare)) return std::nullopt;
  const auto tokens = tokenizer.encode(std::string_view(*prompted).substr(bare->size()),
                                       {.add_special_tokens = false});
  if (!tokens.ok() || tokens->empty() || !tokenizer.is_special(tokens->front())) {
    return std::nullopt;
  }
  return tokens->front();
}

std::vector<int64_t> role_boundaries(std::span<const TokenId> prompt, TokenId role_token) {
  std::vector<int64_t> boundaries;
  for (size_t i = 1; i < prompt.size(); ++i) {
    if (prompt[i] == role_token) boundaries.push_back(static_cast<int64_t>(i));
  }
  return boundaries;
}

}  // namespace heddle::chat
