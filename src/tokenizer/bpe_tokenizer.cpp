// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"

namespace heddle::tokenizer {
namespace {

// English has slightly more than four bytes a token; reserving somewhat more avoids the last
// reallocation.
constexpr size_t kBytesPerTokenGuess = 4;

// Buffers of more bytes than this are freed after the call.
constexpr size_t kMaxKeptBytes = 1 << 20;
constexpr size_t kMaxKeptSymbols = 1 << 15;

// Whether transformers' class builds its post-processor from add_bos_token and add_eos_token,
// whatever tokenizer.json says.
bool is_llama_class(const TokenizerConfig& config) {
  const std::string_view name = config.tokenizer_class;
  return name.starts_with("LlamaTokenizer") || name.starts_with("CodeLlamaTokenizer") ||
         name.starts_with("GemmaTokenizer");
}

// Adds tokens with the ids that Hugging Face's tokenizers give them (BpeTokenizer::create).
class AddedTokenResolver {
 public:
  AddedTokenResolver(const BpeModel& model, AddedTokens& tokens) : model_(model), tokens_(tokens) {}

  // Marks the ids of listed tokens as used, although a token may get another id.
  void reserve(const std::vector<AddedToken>& listed) {
    for (const AddedToken& token : listed) {
      next_free_ = std::max(next_free_, int64_t{token.id} + 1);
    }
  }

  Status add(AddedToken token, std::string_view file) {
    const TokenId written = token.id;
    if (token.content.empty()) {
      log_warning(
          fmt::format("{}: the added token {} has no text and is left out, as in Hugging "
                      "Face's tokenizers",
                      file, written));
      return ok_status();
    }
    if (const AddedToken* const same = tokens_.find(token.content)) {
      if (same->id != written)
        warn(token.content, written, same->id, file, "the first that is listed");
      return ok_status();
    }
    std::string_view which = "that of its text in the vocabulary";
    if (const std::optional<TokenId> known = model_.find_spelling(token.content)) {
      token.id = *known;
    } else if (model_.vocabulary().contains(written) || tokens_.find(written) != nullptr) {
      which = "the next that is free";
      token.id = static_cast<TokenId>(
          std::max({next_free_, model_.vocabulary().end_id(), tokens_.end_id()}));
    }
    const TokenId id = token.id;
    const std::string content = token.content;
    HEDDLE_RETURN_IF_ERROR(tokens_.add(std::move(token)).with_context(std::string(file)));
    if (id != written) warn(content, written, id, file, which);
    return ok_status();
  }

 private:
  static void warn(std::string_view content, TokenId written, TokenId used, std::string_view file,
                   std::string_view which) {
    log_warning(
        fmt::format("{}: the added token '{}' has the id {} there; its id is {}, {}, as in Hugging "
                    "Face's tokenizers",
                    file, shown_token(content), written, used, which));
  }

  const BpeModel& model_;
  AddedTokens& tokens_;
  int64_t next_free_ = 0;
};

}  // namespace

BpeTokenizer::BpeTokenizer(BpeTokenizerParts parts) : parts_(std::move(parts)) {}

Result<std::unique_ptr<Tokenizer>> BpeTokenizer::create(BpeTokenizerParts parts,
                                                        const TokenizerConfig& config) {
  AddedTokenResolver resolver(parts.model, parts.added_tokens);
  resolver.reserve(parts.listed_tokens);
  resolver.reserve(config.added_tokens);
  for (AddedToken& token : parts.listed_tokens) {
    HEDDLE_RETURN_IF_ERROR(resolver.add(std::move(token), parts.listed_in));
  }
  parts.listed_tokens.clear();
  for (const AddedToken& token : config.added_tokens) {
    HEDDLE_RETURN_IF_ERROR(resolver.add(token, config.added_tokens_file()));
  }
  std::unique_ptr<BpeTokenizer> tokenizer(new BpeTokenizer(std::move(parts)));
  HEDDLE_RETURN_IF_ERROR(tokenizer->build_matchers());
  tokenizer->set_normalized_bound();
  tokenizer->apply_config(config);
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

void BpeTokenizer::Scratch::trim() {
  if (bpe.merge.symbols.capacity() > kMaxKeptSymbols) bpe.merge = {};
  if (normalized.capacity() > kMaxKeptBytes) normalized = {};
}

Status BpeTokenizer::build_matchers() {
  RegexScratch regex;
  CancellationPoll poll;
  for (const AddedToken& token : parts_.added_tokens.all()) {
    if (!token.normalized) {
      raw_matcher_.add(token, token.content);
      continue;
    }
    std::string buffer;
    const auto spelling = parts_.normalizer.apply(token.content, buffer, regex, poll, {});
    normalized_matcher_.add(token, std::string(spelling.value_or("")));
  }
  raw_matcher_.finish();
  normalized_matcher_.finish();
  return regex.status;
}

// Added tokens in the normalised text count, too. A token that includes the white space around it
// has no longest spelling. With a pre-tokenizer that drops text there is no bound for the whole
// text.
void BpeTokenizer::set_normalized_bound() {
  const auto is_unbounded = [](const AddedToken& token) {
    return token.normalized && (token.lstrip || token.rstrip);
  };
  if (!parts_.pre_tokenizer.keeps_text() || !parts_.model.bound().is_finished() ||
      std::ranges::any_of(parts_.added_tokens.all(), is_unbounded)) {
    return;
  }
  normalized_bound_ = parts_.model.bound();
  normalized_matcher_.for_each_spelling(
      [this](std::string_view spelling) { normalized_bound_.add(spelling); });
  if (parts_.model.settings().byte_level) {
    normalized_bound_.finish();
  } else {
    normalized_bound_.finish_for_any_bytes();
  }
}

void BpeTokenizer::apply_config(const TokenizerConfig& config) {
  set_roles(resolve_roles(config, *this));
  if (!is_llama_class(config) && (!parts_.prefix.empty() || !parts_.suffix.empty())) {
    note_flags_not_used(config);
    return;
  }
  const auto follow = [](std::optional<bool> flag, std::optional<TokenId> token,
                         std::string_view key, std::vector<TokenId>& ids) {
    if (!flag || !token || ids.empty() != *flag) return;
    log_warning(
        fmt::format("tokenizer.json and tokenizer_config.json differ: {} is {}, and that is "
                    "what is followed, as in transformers",
                    key, *flag));
    ids.clear();
    if (*flag) ids.push_back(*token);
  };
  const bool from_flags = parts_.prefix.empty() && parts_.suffix.empty();
  if (!from_flags) {
    follow(config.add_bos_token, bos_token(), "add_bos_token", parts_.prefix);
    follow(config.add_eos_token, eos_token(), "add_eos_token", parts_.suffix);
    return;
  }
  if (config.add_bos_token.value_or(false) && bos_token()) parts_.prefix.push_back(*bos_token());
  if (config.add_eos_token.value_or(false) && eos_token()) parts_.suffix.push_back(*eos_token());
}

void BpeTokenizer::note_flags_not_used(const TokenizerConfig& config) const {
  const auto note = [](std::optional<bool> flag, bool in_file, std::string_view key) {
    if (!flag || *flag == in_file) return;
    log_warning(
        fmt::format("tokenizer_config.json has {} {}, but the post_processor of tokenizer.json "
                    "{}; tokenizer.json is followed",
                    key, *flag, in_file ? "adds tokens there" : "adds none there"));
  };
  note(config.add_bos_token, !parts_.prefix.empty(), "add_bos_token");
  note(config.add_eos_token, !parts_.suffix.empty(), "add_eos_token");
}

Result<bool> BpeTokenizer::encode_valid(std::string_view text, size_t max_tokens,
                                        EncodeOptions options, CancellationPoll& poll,
                                        std::vector<TokenId>& ids) const {
  const auto scratch = scratch_pool_.take();
  scratch->regex.status = ok_status();
  Encoding encoding{.ids = ids, .max_tokens = max_tokens, .poll = poll};
  ids.reserve(std::min(text.size() / kBytesPerTokenGuess, max_tokens) + parts_.prefix.size() +
              parts_.suffix.size() + 8);
  if (options.add_special_tokens) ids = parts_.prefix;
  const bool went_through = raw_matcher_.split(
      text, options.parse_special_tokens, poll,
      [&](std::string_view part) {
        return encode_raw(part, part.data() == text.data(), options.parse_special_tokens, *scratch,
                          encoding);
      },
      [&](TokenId id) { return encoding.add(id); });
  scratch->trim();
  HEDDLE_RETURN_IF_ERROR(scratch->regex.status);
  if (went_through && options.add_special_tokens) {
    ids.insert(ids.end(), parts_.suffix.begin(), parts_.suffix.end());
  }
  return went_through && encoding.fits();
}

bool BpeTokenizer::encode_raw(std::string_view text, bool at_text_start, bool parse_special,
                              Scratch& scratch, Encoding& encoding) const {
  const PreTokenizer::PieceFunction on_piece = [&](std::string_view piece) {
    return encode_piece(piece, scratch, encoding);
  };
  if (!encoding.fits()) return false;  // the tokens before the text alone exceeded the limit
  const size_t room = encoding.max_tokens - encoding.ids.size();
  uint64_t shares = 0;
  const auto normalized = parts_.normalizer.apply(text, scratch.normalized, scratch.regex,
                                                  encoding.poll, [&](std::string_view part) {
                                                    shares += normalized_bound_.shares(part);
                                                    return TokenBound::whole_tokens(shares) <= room;
                                                  });
  if (!normalized) return false;
  return normalized_matcher_.split(
      *normalized, parse_special, encoding.poll,
      [&](std::string_view part) {
        const bool starts = at_text_start && part.data() == normalized->data();
        return parts_.pre_tokenizer.split(part, starts, scratch.regex, encoding.poll, on_piece);
      },
      [&](TokenId id) { return encoding.add(id); });
}

// One word may be the whole text: the bound shows before merging whether it can fit.
bool BpeTokenizer::encode_piece(std::string_view piece, Scratch& scratch,
                                Encoding& encoding) const {
  if (encoding.poll.cancelled_after(piece.size())) return false;
  const size_t room = encoding.max_tokens - encoding.ids.size();
  if (piece.size() > room && parts_.model.bound().min_tokens(piece) > room) return false;
  return parts_.model.encode(piece, scratch.bpe, encoding.poll, encoding.ids) && encoding.fits();
}

void BpeTokenizer::append_token_bytes(TokenId id, bool skip_special_tokens,
                                      std::string& out) const {
  if (const AddedToken* added = parts_.added_tokens.find(id)) {
    if (!skip_special_tokens || !added->special) out.append(added->content);
    return;
  }
  parts_.decoder.append_bytes(parts_.model, id, out);
}

bool BpeTokenizer::strips_leading_space() const { return parts_.decoder.strip_leading_space; }

std::optional<TokenId> BpeTokenizer::token_to_id(std::string_view token) const {
  if (const AddedToken* added = parts_.added_tokens.find(token)) return added->id;
  return parts_.model.find_spelling(token);
}

std::string BpeTokenizer::id_to_token(TokenId id) const {
  if (const AddedToken* added = parts_.added_tokens.find(id)) return added->content;
  return parts_.model.spelling(id);
}

bool BpeTokenizer::is_special(TokenId id) const {
  const AddedToken* added = parts_.added_tokens.find(id);
  return added != nullptr && added->special;
}

int64_t BpeTokenizer::vocab_size() const {
  return std::max(parts_.model.vocabulary().end_id(), parts_.added_tokens.end_id());
}

}  // namespace heddle::tokenizer
