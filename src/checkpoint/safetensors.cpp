// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include <fmt/format.h>
#include <simdjson.h>

#include "checkpoint/readable.h"
#include "core/file_kind.h"
#include "core/json_syntax.h"
#include "core/remedy.h"

namespace heddle::checkpoint {

namespace {

// Whether the file begins like a safetensors file. A header has less than 4 GiB and begins with
// '{': no other kind of file has four zero bytes and that character at these positions.
bool looks_like_safetensors(std::string_view start) {
  constexpr std::string_view kUpperLength("\0\0\0\0", 4);
  return start.size() > 8 && start.substr(4, 4) == kUpperLength &&
         std::string_view("{ \t\r\n").find(start[8]) != std::string_view::npos;
}

// Whether the file is text that a server sent in place of a file that it refused to send: "Entry
// not found".
bool looks_like_text(std::string_view start) {
  constexpr size_t kBytes = 16;
  return std::ranges::all_of(start.substr(0, kBytes), [](unsigned char c) {
    return c >= 0x20 || c == '\t' || c == '\r' || c == '\n';
  });
}

// Names the kind of a file that is no safetensors file; empty if it may be one.
std::string describe_other_kind(std::span<const std::byte> bytes) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min(bytes.size(), kFileKindBytes));
  if (start.empty()) return "the file is empty; download it again";
  if (looks_like_safetensors(start)) return {};
  if (std::string kind = describe_file_kind(start); !kind.empty()) return kind;
  if (!looks_like_text(start)) return {};
  return fmt::format("the file is no safetensors file but a text, {}; download it again",
                     readable(start));
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  if (const std::string other = describe_other_kind(file.bytes()); !other.empty()) {
    return data_loss(fmt::format("{}: {}", path.string(), other));
  }
  Result<SafetensorsHeader> header =
      parse_safetensors_header(file.bytes(), static_cast<int64_t>(file.bytes().size()));
  if (!header.ok()) return with_remedy(header.status(), kDownloadAgain).with_context(path.string());
  return SafetensorsFile(std::move(file), std::move(header).value());
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::lower_bound(
      header_.tensors.begin(), header_.tensors.end(), name,
      [](const TensorEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found != header_.tensors.end() && found->name == name ? &*found : nullptr;
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorEntry& entry) const {
  return file_.bytes().subspan(static_cast<size_t>(header_.data_offset + entry.begin),
                               static_cast<size_t>(entry.end - entry.begin));
}

Result<TensorView> SafetensorsFile::view(std::string_view name) const {
  const TensorEntry* const entry = find(name);
  if (entry == nullptr) return not_found(fmt::format("there is no tensor {}", readable(name)));
  if (!entry->dtype) {
    return unimplemented(fmt::format("tensor {} is stored as {}, which this build does not read",
                                     readable(name), entry->stored_dtype));
  }
  return TensorView(bytes(*entry).data(), *entry->dtype, entry->shape);
}

namespace {

namespace ondemand = simdjson::ondemand;

struct StoredDType {
  std::string_view name;
  int bits;
  std::optional<DType> dtype;
};

// All dtypes that the format defines: a file may contain tensors that no model reads, and their
// sizes are checked, too.
constexpr std::array<StoredDType, 22> kStoredDTypes = {{
    {"F32", 32, DType::kF32},
    {"BF16", 16, DType::kBf16},
    {"F16", 16, DType::kF16},
    {"F8_E4M3", 8, DType::kF8E4M3},
    {"I64", 64, DType::kI64},
    {"I32", 32, DType::kI32},
    {"I8", 8, DType::kI8},
    {"U8", 8, DType::kU8},
    {"F8_E8M0", 8, DType::kU8},  // scales that are powers of two, read as their codes
    {"F8_E5M2", 8, std::nullopt},
    {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt},
    {"BOOL", 8, std::nullopt},
    {"I16", 16, std::nullopt},
    {"U16", 16, std::nullopt},
    {"U32", 32, std::nullopt},
    {"U64", 64, std::nullopt},
    {"F64", 64, std::nullopt},
    {"C64", 64, std::nullopt},
}};

const StoredDType* find_stored_dtype(std::string_view name) {
  const auto found =
      std::find_if(kStoredDTypes.begin(), kStoredDTypes.end(),
                   [name](const StoredDType& candidate) { return candidate.name == name; });
  return found == kStoredDTypes.end() ? nullptr : &*found;
}

Status json_failure(std::string_view where, simdjson::error_code error) {
  return data_loss(fmt::format("{}: {}", where, simdjson::error_message(error)));
}

// Walks the header once, front to back: simdjson's on-demand values are only valid in that order.
class HeaderWalker {
 public:
  explicit HeaderWalker(int64_t data_size) : data_size_(data_size) {}

  Status walk(ondemand::document& document, SafetensorsHeader& header) {
    ondemand::object object;
    if (const auto error = document.get_object().get(object)) {
      return json_failure("the header is not a JSON object", error);
    }
    for (auto result : object) {
      ondemand::field field;
      if (const auto error = std::move(result).get(field)) {
        return json_failure("the header is not valid JSON", error);
      }
      std::string_view key;
      if (const auto error = field.unescaped_key().get(key)) {
        return json_failure("a tensor name is not valid JSON", error);
      }
      if (key == "__metadata__") {
        HEDDLE_RETURN_IF_ERROR(read_metadata(field.value(), header.metadata));
        continue;
      }
      TensorEntry entry;
      entry.name = key;
      if (Status status = read_entry(field.value(), entry); !status.ok()) {
        return status.with_context(fmt::format("tensor {}", readable(entry.name)));
      }
      header.tensors.push_back(std::move(entry));
    }
    // simdjson's only indication that the whole text was read.
    const auto place = document.current_location();
    if (place.error() == simdjson::OUT_OF_BOUNDS) return ok_status();
    return data_loss("the header has text behind its JSON object");
  }

 private:
  Status read_metadata(ondemand::value value, std::map<std::string, std::string>& metadata) {
    if (metadata_seen_) return data_loss("__metadata__ appears twice");
    metadata_seen_ = true;
    ondemand::object object;
    const auto no_object = value.get_object().get(object);
    // the metadata is missing or not an object; Heddle does not use it
    if (no_object == simdjson::INCORRECT_TYPE) return ok_status();
    if (no_object) return json_failure("__metadata__ is not valid JSON", no_object);
    for (auto result : object) {
      ondemand::field field;
      if (const auto error = std::move(result).get(field)) {
        return json_failure("__metadata__ is not valid JSON", error);
      }
      std::string_view key;
      if (const auto error = field.unescaped_key().get(key)) {
        return json_failure("a key of __metadata__ is not valid JSON", error);
      }
      std::string owned_key(key);
      std::string_view text;
      // metadata values other than strings are ignored
      if (field.value().get_string().get(text) != simdjson::SUCCESS) continue;
      metadata.insert_or_assign(std::move(owned_key), std::string(text));
    }
    return ok_status();
  }

  Status read_entry(ondemand::value value, TensorEntry& entry) {
    ondemand::object object;
    if (const auto error = value.get_object().get(object)) {
      return json_failure("its description is not an object", error);
    }
    const StoredDType* dtype = nullptr;
    bool has_shape = false;
    bool has_offsets = false;
    for (auto result : object) {
      ondemand::field field;
      if (const auto error = std::move(result).get(field)) {
        return json_failure("its description is not valid JSON", error);
      }
      std::string_view key;
      if (const auto error = field.unescaped_key().get(key)) {
        return json_failure("its description is not valid JSON", error);
      }
      if (key == "dtype") {
        std::string_view name;
        if (const auto error = field.value().get_string().get(name)) {
          return json_failure("dtype is not a string", error);
        }
        dtype = find_stored_dtype(name);
        if (dtype == nullptr) {
          return data_loss(fmt::format("dtype {} is not known", readable(name)));
        }
      } else if (key == "shape") {
        std::array<int64_t, Shape::kMaxRank> dims{};
        HEDDLE_ASSIGN_OR_RETURN(const size_t rank, read_integers(field.value(), "shape", dims));
        entry.shape = Shape(std::span(dims).first(rank));
        has_shape = true;
      } else if (key == "data_offsets") {
        std::array<int64_t, 2> offsets{};
        HEDDLE_ASSIGN_OR_RETURN(const size_t count,
                                read_integers(field.value(), "data_offsets", offsets));
        if (count != 2) return data_loss("data_offsets does not have two numbers");
        entry.begin = offsets[0];
        entry.end = offsets[1];
        has_offsets = true;
      }  // other keys come from later versions of the format and are skipped
    }
    if (dtype == nullptr) return data_loss("has no dtype");
    if (!has_shape) return data_loss("has no shape");
    if (!has_offsets) return data_loss("has no data_offsets");
    entry.stored_dtype = dtype->name;
    entry.dtype = dtype->dtype;
    return check_extent(entry, dtype->bits);
  }

  // Reads a list into `numbers` and returns its length.
  static Result<size_t> read_integers(ondemand::value value, std::string_view what,
                                      std::span<int64_t> numbers) {
    ondemand::array array;
    if (const auto error = value.get_array().get(array)) {
      return json_failure(fmt::format("{} is not a list", what), error);
    }
    size_t count = 0;
    for (auto result : array) {
      ondemand::value element;
      if (const auto error = std::move(result).get(element)) {
        return json_failure(fmt::format("{} is not valid JSON", what), error);
      }
      if (count == numbers.size()) {
        return data_loss(fmt::format("{} has more than {} numbers", what, numbers.size()));
      }
      int64_t number = 0;
      const std::string_view token = element.raw_json_token();
      if (element.get_int64().get(number) != simdjson::SUCCESS || number < 0) {
        const std::string_view text = token.substr(0, token.find_first_of(" ,]\t\n\r"));
        return data_loss(
            fmt::format("{} has {}, which is not an integer of 0 or more", what, readable(text)));
      }
      numbers[count++] = number;
    }
    return count;
  }

  Status check_extent(const TensorEntry& entry, int bits) const {
    if (entry.begin > entry.end) {
      return data_loss(fmt::format("data_offsets [{}, {}] run backwards", entry.begin, entry.end));
    }
    if (entry.end > data_size_) {
      return data_loss(
          fmt::format("data_offsets [{}, {}] reach behind the {} bytes of data in the "
                      "file: truncated, or not fully downloaded; download it again",
                      entry.begin, entry.end, data_size_));
    }
    // Checked also for shapes with a zero: strides are products of the other dimensions and must
    // not overflow.
    int64_t bound = bits;
    for (const int64_t dim : entry.shape.dims()) {
      if (__builtin_mul_overflow(bound, std::max<int64_t>(dim, 1), &bound)) {
        return data_loss(
            fmt::format("shape {} is too large for any file", entry.shape.to_string()));
      }
    }
    const int64_t num_bits = entry.shape.num_elements() * bits;
    if (num_bits % 8 != 0 || num_bits / 8 != entry.end - entry.begin) {
      return data_loss(
          fmt::format("shape {} of {} needs {} bytes, but data_offsets [{}, {}] hold {}",
                      entry.shape.to_string(), entry.stored_dtype, (num_bits + 7) / 8, entry.begin,
                      entry.end, entry.end - entry.begin));
    }
    return ok_status();
  }

  int64_t data_size_;
  bool metadata_seen_ = false;
};

Status walk_header(std::string_view text, int64_t data_size, SafetensorsHeader& header) {
  const simdjson::padded_string padded(text);
  if (padded.size() != text.size()) return resource_exhausted("no memory to read the header");
  ondemand::parser parser;
  ondemand::document document;
  if (const auto error = parser.iterate(padded).get(document)) {
    return json_failure("the header is not valid JSON", error);
  }
  return HeaderWalker(data_size).walk(document, header);
}

Status sort_by_name(std::vector<TensorEntry>& tensors) {
  const auto by_name = [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; };
  if (!std::is_sorted(tensors.begin(), tensors.end(), by_name)) {
    std::sort(tensors.begin(), tensors.end(), by_name);
  }
  const auto twin = std::adjacent_find(
      tensors.begin(), tensors.end(),
      [](const TensorEntry& a, const TensorEntry& b) { return a.name == b.name; });
  if (twin == tensors.end()) return ok_status();
  return data_loss(fmt::format("tensor {} appears twice", readable(twin->name)));
}

// Checks that the tensors are end to end from 0 to the end of the file.
Status check_layout(const std::vector<TensorEntry>& tensors, int64_t data_size) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&tensors](size_t a, size_t b) {
    return std::pair(tensors[a].begin, tensors[a].end) <
           std::pair(tensors[b].begin, tensors[b].end);
  });
  int64_t position = 0;
  const TensorEntry* previous = nullptr;
  for (const size_t index : order) {
    const TensorEntry& tensor = tensors[index];
    if (tensor.begin < position) {
      return data_loss(
          fmt::format("tensor {} begins at byte {}, inside tensor {}, which ends at {}",
                      readable(tensor.name), tensor.begin, readable(previous->name), position));
    }
    if (tensor.begin > position) {
      return data_loss(fmt::format("{} bytes before tensor {} belong to no tensor",
                                   tensor.begin - position, readable(tensor.name)));
    }
    position = tensor.end;
    previous = &tensor;
  }
  if (position == data_size) return ok_status();
  return data_loss(
      fmt::format("the last {} bytes of the file belong to no tensor", data_size - position));
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> bytes,
                                                   int64_t file_size) {
  constexpr int64_t kLengthBytes = 8;
  if (file_size < kLengthBytes || bytes.size() < kLengthBytes) {
    return data_loss(fmt::format("{} bytes are too short for a safetensors file", file_size));
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i)
    length |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    return data_loss(fmt::format(
        "the header claims {} bytes, more than the {} that are read (is this a safetensors file?)",
        length, kMaxHeaderBytes));
  }
  if (length > static_cast<uint64_t>(file_size - kLengthBytes) ||
      length > bytes.size() - static_cast<size_t>(kLengthBytes)) {
    return data_loss(
        fmt::format("the header claims {} bytes, the file has {}: truncated; download it "
                    "again",
                    length, file_size));
  }

  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                              static_cast<size_t>(length));
  SafetensorsHeader header;
  header.data_offset = kLengthBytes + static_cast<int64_t>(length);
  const int64_t data_size = file_size - header.data_offset;
  if (Status status = walk_header(text, data_size, header); !status.ok()) {
    // Either the header is broken, or it uses what only Python's json accepts (core/json_syntax.h).
    const Result<std::string> strict = strict_json(text);
    if (!strict.ok()) return strict.status().with_context("the header");
    if (*strict == text) return status;
    header.tensors.clear();
    header.metadata.clear();
    HEDDLE_RETURN_IF_ERROR(walk_header(*strict, data_size, header));
  }
  HEDDLE_RETURN_IF_ERROR(sort_by_name(header.tensors));
  HEDDLE_RETURN_IF_ERROR(check_layout(header.tensors, data_size));
  return header;
}

}  // namespace heddle::checkpoint
