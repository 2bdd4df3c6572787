// SPDX-License-Identifier: Apache-2.0
// TextCodec: text to token ids and back, messages to prompt text. It is the server's interface to
// tokenizer/ and chat/, so that the API can be tested without a vocabulary.
//
// Threading: thread-safe; encode() and render_chat() run on several workers at once.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <heddle/constraint.h>
#include <heddle/request.h>
#include <heddle/status.h>

#include "grammar/grammar.h"
#include "grammar/thinking_budget.h"
#include "server/call/infill_marks.h"
#include "tokenizer/cancellation.h"

namespace heddle::tokenizer {
class Tokenizer;
}  // namespace heddle::tokenizer

namespace heddle::server {

class TextCodec {
 public:
  virtual ~TextCodec() = default;

  // Encodes a text. Special tokens that are spelled out in the text are recognised.
  [[nodiscard]] virtual Result<std::vector<TokenId>> encode(std::string_view text,
                                                            bool add_special_tokens) const = 0;

  // Encodes a text of at most `max_tokens` tokens. Returns false if it has more, which is detected
  // without encoding much beyond the limit (tokenizer/tokenizer.h); `ids` is then meaningless.
  // `is_cancelled` may be null. Error: also kCancelled, if `is_cancelled` returned true.
  [[nodiscard]] virtual Result<bool> encode_at_most(
      std::string_view text, size_t max_tokens, bool add_special_tokens,
      const tokenizer::CancellationCheck* is_cancelled, std::vector<TokenId>& ids) const = 0;

  // Decodes ids, which must be within the vocabulary.
  [[nodiscard]] virtual std::string decode(std::span<const TokenId> tokens,
                                           bool skip_special_tokens) const = 0;

  // The bytes that a token represents; not always complete characters.
  [[nodiscard]] virtual std::string token_bytes(TokenId token) const = 0;

  // Positions at which messages begin in a prompt (chat/chat_template.h).
  [[nodiscard]] virtual std::vector<int64_t> role_boundaries(
      std::span<const TokenId> prompt) const = 0;

  // Renders the chat template. `tools` is a list or null; `variables` is an object with further
  // variables. Error: kInvalidArgument with the template's own message, kUnimplemented without a
  // template.
  [[nodiscard]] virtual Result<std::string> render_chat(
      const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
      bool add_generation_prompt, const nlohmann::ordered_json& variables) const = 0;

  // Renders a client's conversation so that all its texts are in the prompt (chat/conversation.h).
  // Parts, and arguments of calls, are as the client sent them. `part_separator` is put between the
  // parts of a message if the template cannot read lists. Error: that of render_chat(), or
  // kInvalidArgument for a text that the template omits.
  [[nodiscard]] virtual Result<std::string> render_conversation(
      const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
      bool add_generation_prompt, const nlohmann::ordered_json& variables,
      std::string_view part_separator) const;

  // Whether prompts of render_conversation() contain the names of the tools.
  [[nodiscard]] virtual bool shows_tools() const { return true; }

  // Whether compile() for this source, or, if it is null, limit_reasoning(), only needs a look-up.
  [[nodiscard]] virtual bool is_compiled(const grammar::GrammarSource* source) const {
    (void)source;
    return true;
  }

  // Compiles a constraint over the tokens that are text. `ending_tokens` end an answer; they belong
  // to the model and are the same in every call. Cost: grammar::compile() the first time; the very
  // first call reads the vocabulary, some 0.2 s. `check` may be null. Error: that of
  // grammar::compile(); kUnimplemented if there is no vocabulary.
  [[nodiscard]] virtual Result<std::shared_ptr<const Constraint>> compile(
      const grammar::GrammarSource& source, std::span<const TokenId> ending_tokens,
      const grammar::CompileCheck* check = nullptr) const {
    (void)source;
    (void)ending_tokens;
    (void)check;
    return unimplemented("there is no vocabulary to hold an answer to a form with");
  }

  // A constraint that ends the reasoning after a number of tokens. `form`, which may be null,
  // constrains the answer further. The marks' tokens and `ending` come from this codec. Cost: O(1),
  // except the very first call, which costs the same as that of compile(). Error: kUnimplemented if
  // there is no vocabulary.
  [[nodiscard]] virtual Result<std::shared_ptr<const Constraint>> limit_reasoning(
      grammar::ThinkingBudgetOptions budget, std::shared_ptr<const Constraint> form,
      std::span<const TokenId> ending_tokens) const {
    (void)budget;
    (void)form;
    (void)ending_tokens;
    return unimplemented("there is no vocabulary to end an answer's reasoning with");
  }

  // The model's marks for filling gaps between texts; none if it has no such training.
  [[nodiscard]] virtual std::optional<InfillMarks> infill_marks() const { return std::nullopt; }

  // Metrics of compile() for Prometheus. Empty before its first call.
  [[nodiscard]] virtual std::string metrics_text() const { return {}; }

  // The source of the chat template, with and without tools; empty without one. The formats of
  // calls and reasoning are derived from it.
  [[nodiscard]] virtual std::string chat_template_source() const { return {}; }
};

// The codec of a model's own files. `tokenizer` outlives it. A missing chat template causes a
// warning now and an error of render_chat() later. `chat_template` names a file that replaces the
// model's template; empty: the model's.
Result<std::unique_ptr<TextCodec>> make_model_codec(const std::filesystem::path& model_dir,
                                                    const tokenizer::Tokenizer& tokenizer,
                                                    const std::filesystem::path& chat_template);

}  // namespace heddle::server
