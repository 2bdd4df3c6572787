// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/gguf_model.h"
#include "core/file_presence.h"
#include "core/log.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/tiktoken.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocab_merges.h"

namespace heddle::tokenizer {

Tokenizer::~Tokenizer() = default;

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  constexpr size_t kAnyNumber = std::numeric_limits<size_t>::max();
  std::vector<TokenId> ids;
  HEDDLE_RETURN_IF_ERROR(encode_at_most(text, kAnyNumber, options, ids).status());
  return ids;
}

Result<bool> Tokenizer::encode_at_most(std::string_view text, size_t max_tokens,
                                       EncodeOptions options, std::vector<TokenId>& ids) const {
  ids.clear();
  if (text.size() > kMaxTextBytes) {
    return invalid_argument(fmt::format(
        "a text of {} bytes is too long to tokenize; the limit is {}", text.size(), kMaxTextBytes));
  }
  CancellationPoll poll(options.is_cancelled);
  Result<bool> fits = is_valid_utf8(text) ? encode_valid(text, max_tokens, options, poll, ids)
                                          : encode_valid(replace_ill_formed_utf8(text), max_tokens,
                                                         options, poll, ids);
  if (poll.cancelled()) {
    return cancelled(fmt::format("encoding a text of {} bytes was cancelled", text.size()));
  }
  return fits;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (const TokenId id : ids) append_token_bytes(id, skip_special_tokens, bytes);
  std::string_view rest = bytes;
  if (strips_leading_space() && rest.starts_with(' ')) rest.remove_prefix(1);
  return replace_ill_formed_utf8(rest);
}

namespace {

struct OtherVocabulary {
  std::string_view ending;  // ending of the file's name
  std::string_view what;    // rest of the error message
};

constexpr OtherVocabulary kOtherVocabularies[] = {
    {".tiktoken", "which does not say how to split words and is not served"},
    {"tekken.json", "a vocabulary in the layout of the model's maker, which is not served"},
    {"vocab.json", "which is of no use without its merges.txt"},
    {"merges.txt", "which is of no use without its vocab.json"},
    {"spiece.model", "a SentencePiece model under another name, which is not looked for"},
    {"sentencepiece.bpe.model",
     "a SentencePiece model under another name, which is not looked for"},
    {"vocab.txt", "a WordPiece vocabulary, which is not served"},
};

Status no_tokenizer(const std::filesystem::path& model_dir) {
  const Result<std::vector<std::string>> listed = names_in_folder(model_dir);
  if (!listed.ok() && listed.status().code() != StatusCode::kNotFound) return listed.status();
  const std::vector<std::string> names = listed.ok() ? *listed : std::vector<std::string>();
  for (const auto& [ending, what] : kOtherVocabularies) {
    for (const std::string& name : names) {
      if (!name.ends_with(ending)) continue;
      return not_found(fmt::format(
          "{} has only a {}, {}; put the tokenizer.json of the same model beside it, as "
          "conversions of the model have it",
          model_dir.string(), name, what));
    }
  }
  return not_found(fmt::format(
      "{} has no tokenizer.json, no vocab.json with merges.txt, no tiktoken.model and no "
      "tokenizer.model; copy the tokenizer files of the model there",
      model_dir.string()));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::filesystem::path& model_dir) {
  HEDDLE_ASSIGN_OR_RETURN(const auto gguf, checkpoint::find_gguf(model_dir));
  if (gguf) return load_gguf_tokenizer(*gguf);
  HEDDLE_ASSIGN_OR_RETURN(TokenizerConfig config, load_tokenizer_config(model_dir));
  // The error of a dangling link; it is returned if no other file has the vocabulary.
  Status broken;
  const auto exists = [&](const char* name) -> Result<bool> {
    Result<bool> found = file_exists(model_dir / name);
    if (found.ok() || found.status().code() != StatusCode::kDataLoss) return found;
    if (broken.ok()) broken = found.status();
    return false;
  };
  HEDDLE_ASSIGN_OR_RETURN(const bool has_json, exists("tokenizer.json"));
  HEDDLE_ASSIGN_OR_RETURN(const bool has_vocabulary, exists("vocab.json"));
  HEDDLE_ASSIGN_OR_RETURN(const bool has_merges, exists("merges.txt"));
  HEDDLE_ASSIGN_OR_RETURN(const bool has_ranks, exists("tiktoken.model"));
  HEDDLE_ASSIGN_OR_RETURN(const bool has_pieces, exists("tokenizer.model"));
  const bool has_pair = has_vocabulary && has_merges;
  if (!has_json && !has_pair && !has_ranks && !has_pieces) {
    return broken.ok() ? no_tokenizer(model_dir) : broken;
  }
  if (!has_json) {
    HEDDLE_RETURN_IF_ERROR(load_added_tokens(model_dir, config));
    if (!broken.ok()) log_warning(broken.message());
  }
  for (const std::string& note : config.notes) log_warning(note);
  if (has_json) return load_tokenizer_json(model_dir / "tokenizer.json", config);
  if (has_pair) return load_vocab_merges(model_dir, std::move(config));
  if (has_ranks) return load_tiktoken(model_dir, std::move(config));
  return load_sentencepiece(model_dir / "tokenizer.model", config);
}

Status check_same_tokens(const Tokenizer& tokenizer, const Tokenizer& other) {
  const int64_t count = std::min(tokenizer.vocab_size(), other.vocab_size());
  for (int64_t i = 0; i < count; ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string token = tokenizer.id_to_token(id);
    const std::string others = other.id_to_token(id);
    if (token == others || token.empty() || others.empty()) continue;
    return invalid_argument(fmt::format("token {} is \"{}\", not \"{}\"", id, others, token));
  }
  return {};
}

}  // namespace heddle::tokenizer
