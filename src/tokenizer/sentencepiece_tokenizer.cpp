// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sentencepiece_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include "core/json_reader.h"
#include "core/log.h"
#include "core/remedy.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/token_bound.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

namespace heddle::tokenizer {
namespace {

constexpr std::string_view kSpaceMark = "▁";  // U+2581, which replaces a space in pieces
constexpr size_t kByteTokenLength = 6;        // number of bytes in "<0xNN>", the spelling of a byte
                                              // token
constexpr int kNumByteTokens = 256;

// The most bytes that the library gets in one call: 10 to 40 ms of its work.
constexpr size_t kRunBytes = CancellationPoll::kPollBytes;

// A private-use character that is in no vocabulary, so it merges with nothing: text after it is
// encoded as if it were not at the start.
constexpr std::string_view kSentinel = "\xEE\x80\x80";  // the private-use character U+E000

// Finds positions at which a text can be cut such that its parts have the same ids as the whole:
// between two characters that are not adjacent in any piece, because a BPE model merges nothing
// across them. The library encodes a whole text in one call, at less than 1 MB/s; parts can be
// counted and cancelled.
class CutFinder {
 public:
  void add(std::string_view piece) {
    std::optional<char32_t> previous;
    for (size_t i = 0; i < piece.size();) {
      const Utf8Unit unit = decode_utf8(piece.substr(i));
      if (previous) pairs_.push_back(pair_of(*previous, unit.code_point));
      previous = unit.code_point;
      i += unit.length;
    }
  }

  void finish() {
    std::ranges::sort(pairs_);
    pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
  }

  // The first such position at or after byte `from`; otherwise the end of `text`.
  [[nodiscard]] size_t find(std::string_view text, size_t from) const {
    size_t i = 0;
    for (i = from; i < text.size(); ++i) {
      // a continuation byte: the position is inside a character
      if ((static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) continue;
      const char32_t before = as_in_pieces(last_code_point(text.substr(0, i)));
      const char32_t after = as_in_pieces(decode_utf8(text.substr(i)).code_point);
      if (!std::ranges::binary_search(pairs_, pair_of(before, after))) break;
    }
    return std::min(i, text.size());
  }

 private:
  static char32_t as_in_pieces(char32_t code_point) {
    return code_point == ' ' ? U'▁' : code_point;
  }

  static uint64_t pair_of(char32_t left, char32_t right) { return uint64_t{left} << 32 | right; }

  std::vector<uint64_t> pairs_;  // pairs of neighbouring characters that occur in a piece, sorted
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> create(std::string_view model,
                                                   const TokenizerConfig& config) {
    std::unique_ptr<SentencePieceTokenizer> tokenizer(new SentencePieceTokenizer());
    HEDDLE_RETURN_IF_ERROR(tokenizer->load_model(model));
    HEDDLE_RETURN_IF_ERROR(tokenizer->collect_added_tokens(config));
    HEDDLE_RETURN_IF_ERROR(tokenizer->probe_sentinel());
    if (normalizer_keeps_text(model)) tokenizer->set_bound(is_bpe_model(model));
    tokenizer->apply_config(config);
    return std::unique_ptr<Tokenizer>(std::move(tokenizer));
  }

  void append_token_bytes(TokenId id, bool skip_special_tokens, std::string& out) const override {
    if (const AddedToken* added = added_tokens_.find(id)) {
      if (!skip_special_tokens || !added->special) out.append(added->content);
      return;
    }
    if (!is_piece(id)) return;
    const std::string& piece = processor_.IdToPiece(id);
    if (processor_.IsByte(id)) {
      append_byte(piece, out);
      return;
    }
    size_t done = 0;
    for (size_t at = piece.find(kSpaceMark); at != std::string::npos;
         at = piece.find(kSpaceMark, done)) {
      out.append(piece, done, at - done).push_back(' ');
      done = at + kSpaceMark.size();
    }
    out.append(piece, done);
  }

  [[nodiscard]] bool strips_leading_space() const override { return has_dummy_prefix_; }

  [[nodiscard]] std::optional<TokenId> token_to_id(std::string_view token) const override {
    if (const AddedToken* added = added_tokens_.find(token)) return added->id;
    const int id = processor_.PieceToId(token);
    if (!is_piece(id) || processor_.IdToPiece(id) != token) return std::nullopt;
    return id;
  }

  [[nodiscard]] std::string id_to_token(TokenId id) const override {
    if (const AddedToken* added = added_tokens_.find(id)) return added->content;
    return is_piece(id) ? processor_.IdToPiece(id) : std::string();
  }

  [[nodiscard]] bool is_special(TokenId id) const override {
    const AddedToken* added = added_tokens_.find(id);
    return added != nullptr && added->special;
  }

  [[nodiscard]] int64_t vocab_size() const override {
    return std::max<int64_t>(processor_.GetPieceSize(), added_tokens_.end_id());
  }

 protected:
  [[nodiscard]] Result<bool> encode_valid(std::string_view text, size_t max_tokens,
                                          EncodeOptions options, CancellationPoll& poll,
                                          std::vector<TokenId>& ids) const override {
    if (options.add_special_tokens && add_bos_) ids.push_back(*bos_token());
    Status status;
    const bool went_through = matcher_.split(
        text, options.parse_special_tokens, poll,
        [&](std::string_view part) {
          if (ids.size() > max_tokens) return false;  // BOS alone exceeded the limit
          const size_t room = max_tokens - ids.size();
          if (part.size() > room && bound_.min_tokens(part) > room) return false;
          const bool prefixed = part.data() == text.data() || prefix_everywhere_;
          for (size_t begin = 0; begin < part.size();) {
            const size_t end = end_of_run(part, begin);
            status = encode_run(part.substr(begin, end - begin), prefixed && begin == 0, ids);
            if (!status.ok() || ids.size() > max_tokens) return false;
            if (poll.cancelled_after(end - begin)) return false;
            begin = end;
          }
          return true;
        },
        [&](TokenId id) {
          ids.push_back(id);
          return ids.size() <= max_tokens;
        });
    HEDDLE_RETURN_IF_ERROR(status);
    if (options.add_special_tokens && add_eos_) ids.push_back(*eos_token());
    return went_through && ids.size() <= max_tokens;
  }

 private:
  SentencePieceTokenizer() = default;

  Status load_model(std::string_view model) {
    HEDDLE_RETURN_IF_ERROR(check_sentencepiece_model(model));
    const auto status = processor_.LoadFromSerializedProto(model);
    if (!status.ok()) return not_a_sentencepiece_model(status.ToString());
    if (processor_.GetPieceSize() > kMaxTokenId) {
      return data_loss(fmt::format("the model has {} pieces, more than {}",
                                   processor_.GetPieceSize(), kMaxTokenId));
    }
    return ok_status();
  }

  Status collect_added_tokens(const TokenizerConfig& config) {
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (!processor_.IsControl(id) && !processor_.IsUnknown(id)) continue;
      HEDDLE_RETURN_IF_ERROR(
          added_tokens_.add({.id = id, .content = processor_.IdToPiece(id), .special = true}));
    }
    for (AddedToken token : config.added_tokens) {
      Status status;
      const int known = processor_.PieceToId(token.content);
      if (known != token.id && is_piece(known) && processor_.IdToPiece(known) == token.content) {
        log_warning(fmt::format(
            "the added token '{}' has the id {} in {}; its id is {}, that of tokenizer.model",
            token.content, token.id, config.added_tokens_file(), known));
        token.id = known;
      }
      if (is_piece(token.id) && processor_.IdToPiece(token.id) != token.content) {
        status = data_loss(fmt::format("the added token '{}' has the id {} of the piece '{}'",
                                       token.content, token.id, processor_.IdToPiece(token.id)));
      } else {
        status = added_tokens_.add(token);
      }
      if (!status.ok()) {
        log_warning(
            fmt::format("{} is not followed: {}", config.added_tokens_file(), status.message()));
      }
    }
    for (const AddedToken& token : unlisted_special_tokens(
             config, [this](const std::string& text) { return token_to_id(text); },
             static_cast<TokenId>(vocab_size()))) {
      HEDDLE_RETURN_IF_ERROR(added_tokens_.add(token));
    }
    for (const AddedToken& token : added_tokens_.all()) matcher_.add(token, token.content);
    matcher_.finish();
    return ok_status();
  }

  Status probe_sentinel() {
    HEDDLE_RETURN_IF_ERROR(run(kSentinel, sentinel_ids_));
    has_dummy_prefix_ =
        !sentinel_ids_.empty() && processor_.IdToPiece(sentinel_ids_[0]).starts_with(kSpaceMark);
    return ok_status();
  }

  // Unknown characters may be joined to one token. So only if byte tokens represent them, there is
  // a bound for a text and a text can be cut.
  void set_bound(bool is_bpe) {
    TokenBound bound;
    CutFinder cuts;
    int num_bytes = 0;
    bool has_sentinel = false;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      num_bytes += processor_.IsByte(id) ? 1 : 0;
      // The spellings of byte and control tokens are included, because a model of whole words
      // encodes such a text as a single token.
      const std::string& piece = processor_.IdToPiece(id);
      // a piece contains a real space, so the mark does not replace every space
      if (piece.find(' ') != std::string::npos) return;
      bound.add(piece);
      cuts.add(piece);
      has_sentinel |= piece.find(kSentinel) != std::string::npos;
    }
    if (num_bytes != kNumByteTokens) return;
    bound.finish();
    bound.set_alias(' ', kSpaceMark);
    bound_ = bound;
    if (!is_bpe || has_sentinel) return;
    cuts.finish();
    cuts_ = std::move(cuts);
  }

  void apply_config(const TokenizerConfig& config) {
    TokenizerConfig complete = config;
    const auto name_of = [this](int id) {
      return is_piece(id) ? std::optional(processor_.IdToPiece(id)) : std::nullopt;
    };
    if (!complete.bos_token) complete.bos_token = name_of(processor_.bos_id());
    if (!complete.eos_token) complete.eos_token = name_of(processor_.eos_id());
    if (!complete.pad_token) complete.pad_token = name_of(processor_.pad_id());
    set_roles(resolve_roles(complete, *this));
    // These models expect a BOS token unless their files say otherwise.
    add_bos_ = config.add_bos_token.value_or(true) && bos_token().has_value();
    add_eos_ = config.add_eos_token.value_or(false) && eos_token().has_value();
    prefix_everywhere_ = config.legacy;
  }

  [[nodiscard]] size_t end_of_run(std::string_view text, size_t begin) const {
    return cuts_ ? cuts_->find(text, begin + kRunBytes) : text.size();
  }

  // `prefixed`: the model adds its leading space to the text, if it has one.
  Status encode_run(std::string_view text, bool prefixed, std::vector<TokenId>& ids) const {
    std::vector<int> pieces;
    if (prefixed || !has_dummy_prefix_) {
      HEDDLE_RETURN_IF_ERROR(run(text, pieces));
      ids.insert(ids.end(), pieces.begin(), pieces.end());
      return ok_status();
    }
    HEDDLE_RETURN_IF_ERROR(run(std::string(kSentinel).append(text), pieces));
    if (!std::ranges::equal(sentinel_ids_, std::span(pieces).first(
                                               std::min(pieces.size(), sentinel_ids_.size())))) {
      return internal_error(
          "the SentencePiece model merges U+E000, so \"legacy\": false cannot be "
          "served; set it to true in tokenizer_config.json");
    }
    ids.insert(ids.end(), pieces.begin() + static_cast<std::ptrdiff_t>(sentinel_ids_.size()),
               pieces.end());
    return ok_status();
  }

  Status run(std::string_view text, std::vector<int>& ids) const {
    const auto status = processor_.Encode(text, &ids);
    return status.ok() ? ok_status()
                       : internal_error(fmt::format("sentencepiece: {}", status.ToString()));
  }

  [[nodiscard]] bool is_piece(int id) const { return id >= 0 && id < processor_.GetPieceSize(); }

  static void append_byte(std::string_view piece, std::string& out) {
    if (piece.size() != kByteTokenLength) return;
    unsigned byte = 0;
    const char* digits = piece.data() + 3;
    if (std::from_chars(digits, digits + 2, byte, 16).ec == std::errc()) {
      out.push_back(static_cast<char>(byte));
    }
  }

  sentencepiece::SentencePieceProcessor processor_;
  AddedTokens added_tokens_;
  AddedTokenMatcher matcher_;
  TokenBound bound_;
  std::optional<CutFinder> cuts_;  // nullopt: texts cannot be cut and are passed to the library
                                   // whole
  std::vector<int> sentinel_ids_;
  bool has_dummy_prefix_ = false;
  bool prefix_everywhere_ = true;
  bool add_bos_ = false;
  bool add_eos_ = false;
};

// Whether the first line is like "IQ== 0", a token in base64 and its rank. Llama 3's original files
// have the name of a SentencePiece model.
bool is_tiktoken(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  const size_t space = line.find(' ');
  constexpr std::string_view kBase64 =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
  return space != std::string_view::npos && space >= 4 && space % 4 == 0 &&
         line.substr(0, space).find_first_not_of(kBase64) == std::string_view::npos &&
         line.size() > space + 1 &&
         line.substr(space + 1).find_first_not_of("0123456789\r") == std::string_view::npos;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> parse_sentencepiece(std::string_view model,
                                                       const TokenizerConfig& config) {
  return SentencePieceTokenizer::create(model, config);
}

Result<std::unique_ptr<Tokenizer>> load_sentencepiece(const std::filesystem::path& path,
                                                      const TokenizerConfig& config) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string model, read_whole_file(path));
  if (is_tiktoken(model)) {
    return unimplemented(fmt::format(
        "{} is a tiktoken vocabulary, which does not say how to split words and is not served; put "
        "the tokenizer.json of the same model beside it",
        path.string()));
  }
  Result<std::unique_ptr<Tokenizer>> tokenizer = parse_sentencepiece(model, config);
  if (!tokenizer.ok()) {
    return with_remedy(tokenizer.status(), kDownloadAgain).with_context(path.string());
  }
  return tokenizer;
}

}  // namespace heddle::tokenizer
