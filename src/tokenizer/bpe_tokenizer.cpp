// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"

namespace heddle::tokenizer {
namespace {

// English has about four bytes a token; a little more room saves the last growth.
constexpr size_t kBytesPerTokenGuess = 4;

// Buffers above this size are not kept for the next call.
constexpr size_t kMaxKeptBytes = 1 << 20;
constexpr size_t kMaxKeptSymbols = 1 << 15;

// An added token may also be in the vocabulary, under the same id.
Status check_against_vocabulary(const BpeModel& model, const AddedToken& token) {
  if (model.vocabulary().contains(token.id) && model.spelling(token.id) != token.content) {
    return data_loss(
        fmt::format("the added token '{}' has the id {}, which is '{}' in the vocabulary",
                    token.content, token.id, model.spelling(token.id)));
  }
  const std::optional<TokenId> other = model.find_spelling(token.content);
  if (other && *other != token.id) {
    return data_loss(fmt::format("the added token '{}' has the id {}, but {} in the vocabulary",
                                 token.content, token.id, *other));
  }
  return ok_status();
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeTokenizerParts parts) : parts_(std::move(parts)) {}

Result<std::unique_ptr<Tokenizer>> BpeTokenizer::create(BpeTokenizerParts parts,
                                                        const TokenizerConfig& config) {
  for (const AddedToken& token : parts.added_tokens.all()) {
    HEDDLE_RETURN_IF_ERROR(check_against_vocabulary(parts.model, token));
  }
  for (const AddedToken& token : config.added_tokens) {
    Status status = check_against_vocabulary(parts.model, token);
    if (status.ok()) status = parts.added_tokens.add(token);
    if (!status.ok()) {  // the vocabulary's own file wins
      log_warning(fmt::format("tokenizer_config.json is not followed: {}", status.message()));
    }
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

// Added tokens in the normalised text count, too; one that takes the white space around it has no
// longest spelling. A pre-tokenizer that drops text makes a bound of the whole text wrong.
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
  if (!parts_.prefix.empty() || !parts_.suffix.empty()) return;
  if (config.add_bos_token.value_or(false) && bos_token()) parts_.prefix.push_back(*bos_token());
  if (config.add_eos_token.value_or(false) && eos_token()) parts_.suffix.push_back(*eos_token());
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
  if (!encoding.fits()) return false;  // the tokens before the text were too many
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

// A single word may be the whole text: the bound tells whether it can fit before it is merged.
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
