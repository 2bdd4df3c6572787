// SPDX-License-Identifier: Apache-2.0
// ScriptedModel writes a tiny checkpoint that plays texts, token by token: with it the real engine,
// tokenizer and server give answers that no small model would.
//
//   ScriptedModel model;
//   model.scripts = {{"A", "<think>\nHm.\n</think>\n\nYes"}, {"B", "No"}};
//   model.write(folder);
//
// The last token of a prompt picks the script: the key is one byte, or one of the tokens below. The
// built-in template ends in the last character of the last message if that is a key, else in the
// first key; with an `opening` it ends in that instead, so the key is the last token of the opening
// ("<think>\n" plays the script "\n"). A template of a test's own may end as it likes, also in one
// script or the other to tell what it was given.
//
// A script is cut into pieces of a few bytes, also within characters; each is a token of its own,
// which no other place of any script has. An added token is one token where it comes first,
// and cut into pieces like all else later. A prompt is one token a byte, but for special
// tokens. An answer ends with <|eot|>. It is a Llama of one layer whose attention and MLP are zero:
// the embedding is the identity, row t of the head is the one-hot of the token before t.
//
// Threading: thread-compatible. Cost: some milliseconds and a MB for scripts of a few hundred
// tokens; quadratic in the number of tokens.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <heddle/request.h>

namespace heddle::server {

class ScriptedModel {
 public:
  // In the order of their names the first is the default.
  std::map<std::string, std::string> scripts = {{"A", "Yes"}};
  std::vector<std::string> added_tokens = {};    // single tokens of the text, as "<think>" often is
  std::vector<std::string> special_tokens = {};  // beside <|eot|>, <|im_start|>, <|im_end|>
  std::string opening = {};                      // what the prompt ends with
  std::string chat_template = {};                // empty: the built-in one
  std::vector<size_t> piece_bytes = {2, 3, 5, 8};  // in turn; pieces that exist already grow
  int64_t context_length = 8192;                   // of config.json

  // Whole files that are changed or added: {"config.json": {"rope_theta": 1}} merges.
  std::map<std::string, nlohmann::ordered_json> file_changes = {};

  // Error: the test fails.
  void write(const std::filesystem::path& folder) const;

  // The texts of the tokens of a script, in order, without the one that ends the answer.
  [[nodiscard]] std::vector<std::string> pieces_of(const std::string& script) const;

  // The template that write() gives the model.
  [[nodiscard]] std::string written_template() const;
};

}  // namespace heddle::server
