// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>

#include <fmt/format.h>

#include "checkpoint/readable.h"

namespace heddle::checkpoint {

namespace {

using quant::BlockType;

constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMaxAlignment = int64_t{1} << 20;
constexpr uint32_t kMaxGgufRank = 4;

// The fewest bytes that a metadata entry and a tensor entry can have.
constexpr uint64_t kLeastEntryBytes = 13;
constexpr uint64_t kLeastTensorBytes = 24;

constexpr GgufType plain(uint32_t id, std::string_view name, int64_t bytes,
                         std::optional<DType> dtype = std::nullopt) {
  return {.id = id, .name = name, .block = {1, bytes}, .dtype = dtype, .blocks = std::nullopt};
}

constexpr GgufType unserved(uint32_t id, std::string_view name, int64_t columns, int64_t bytes) {
  return {.id = id,
          .name = name,
          .block = {columns, bytes},
          .dtype = std::nullopt,
          .blocks = std::nullopt};
}

constexpr GgufType blocks(uint32_t id, std::string_view name, int64_t columns, int64_t bytes,
                          BlockType type) {
  return {.id = id, .name = name, .block = {columns, bytes}, .dtype = std::nullopt, .blocks = type};
}

// All types that the GGUF format defines: a file may contain tensors that no model reads, and their
// sizes are checked, too.
constexpr std::array kGgufTypes = {
    plain(0, "F32", 4, DType::kF32),
    plain(1, "F16", 2, DType::kF16),
    blocks(2, "Q4_0", 32, 18, BlockType::kQ4_0),
    blocks(3, "Q4_1", 32, 20, BlockType::kQ4_1),
    blocks(6, "Q5_0", 32, 22, BlockType::kQ5_0),
    blocks(7, "Q5_1", 32, 24, BlockType::kQ5_1),
    blocks(8, "Q8_0", 32, 34, BlockType::kQ8_0),
    unserved(9, "Q8_1", 32, 36),
    unserved(10, "Q2_K", 256, 84),
    unserved(11, "Q3_K", 256, 110),
    blocks(12, "Q4_K", 256, 144, BlockType::kQ4K),
    blocks(13, "Q5_K", 256, 176, BlockType::kQ5K),
    blocks(14, "Q6_K", 256, 210, BlockType::kQ6K),
    unserved(15, "Q8_K", 256, 292),
    unserved(16, "IQ2_XXS", 256, 66),
    unserved(17, "IQ2_XS", 256, 74),
    unserved(18, "IQ3_XXS", 256, 98),
    unserved(19, "IQ1_S", 256, 50),
    unserved(20, "IQ4_NL", 32, 18),
    unserved(21, "IQ3_S", 256, 110),
    unserved(22, "IQ2_S", 256, 82),
    unserved(23, "IQ4_XS", 256, 136),
    plain(24, "I8", 1),
    plain(25, "I16", 2),
    plain(26, "I32", 4, DType::kI32),
    plain(27, "I64", 8, DType::kI64),
    plain(28, "F64", 8),
    unserved(29, "IQ1_M", 256, 56),
    plain(30, "BF16", 2, DType::kBf16),
    unserved(34, "TQ1_0", 256, 54),
    unserved(35, "TQ2_0", 256, 66),
    blocks(39, "MXFP4", 32, 17, BlockType::kMxfp4),
    unserved(40, "NVFP4", 64, 36),
};

uint64_t bytes_of(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16:
      return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32:
      return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  return 0;  // strings and arrays have no fixed size
}

std::string_view name_of(GgufValueType type) {
  constexpr std::array<std::string_view, 13> kNames = {"u8",  "i8",  "u16",  "i16",    "u32",
                                                       "i32", "f32", "bool", "string", "array",
                                                       "u64", "i64", "f64"};
  return kNames[static_cast<size_t>(type)];
}

template <typename T>
T load(std::span<const std::byte> bytes, uint64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

// The double nearest to the shortest decimal text of a float: 1e-6 for the float 9.99999997e-7.
double shortest(float value) {
  std::array<char, 64> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  double exact = static_cast<double>(value);
  if (error == std::errc()) std::from_chars(text.data(), end, exact);
  return exact;
}

std::optional<int64_t> integer_at(const GgufValue& value, uint64_t index) {
  switch (value.type) {
    case GgufValueType::kU8:
      return load<uint8_t>(value.bytes, index);
    case GgufValueType::kI8:
      return load<int8_t>(value.bytes, index);
    case GgufValueType::kU16:
      return load<uint16_t>(value.bytes, index);
    case GgufValueType::kI16:
      return load<int16_t>(value.bytes, index);
    case GgufValueType::kU32:
      return load<uint32_t>(value.bytes, index);
    case GgufValueType::kI32:
      return load<int32_t>(value.bytes, index);
    case GgufValueType::kI64:
      return load<int64_t>(value.bytes, index);
    case GgufValueType::kU64: {
      const auto wide = load<uint64_t>(value.bytes, index);
      if (wide > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(wide);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> number_at(const GgufValue& value, uint64_t index) {
  if (value.type == GgufValueType::kF32) return shortest(load<float>(value.bytes, index));
  if (value.type == GgufValueType::kF64) return load<double>(value.bytes, index);
  const std::optional<int64_t> integer = integer_at(value, index);
  if (!integer) return std::nullopt;
  return static_cast<double>(*integer);
}

std::optional<bool> boolean_at(const GgufValue& value, uint64_t index) {
  if (value.type != GgufValueType::kBool) return std::nullopt;
  return load<uint8_t>(value.bytes, index) != 0;
}

std::string describe(const GgufValue& value) {
  if (value.is_array) return fmt::format("an array of {} {}", value.count, name_of(value.type));
  if (value.type == GgufValueType::kString) {
    return readable(
        {reinterpret_cast<const char*>(value.bytes.data()) + 8, value.bytes.size() - 8});
  }
  if (const auto boolean = boolean_at(value, 0)) return *boolean ? "true" : "false";
  if (const auto number = number_at(value, 0)) return fmt::format("{}", *number);
  return fmt::format("a {} out of range", name_of(value.type));
}

// Reads one value with `at(value, index)`; none if the key is absent.
template <typename T, typename At>
Result<std::optional<T>> one(const GgufValue* value, std::string_view key, std::string_view what,
                             const At& at) {
  if (value == nullptr) return std::optional<T>();
  if (!value->is_array) {
    if (std::optional<T> found = at(*value, uint64_t{0})) return found;
  }
  return data_loss(fmt::format("{} is {}, {} is needed", readable(key), describe(*value), what));
}

template <typename T, typename At>
Result<std::optional<std::vector<T>>> all(const GgufValue* value, std::string_view key,
                                          std::string_view what, const At& at) {
  if (value == nullptr) return std::optional<std::vector<T>>();
  std::vector<T> elements;
  for (uint64_t i = 0; i < value->count; ++i) {
    std::optional<T> found = at(*value, i);
    if (!found) {
      return data_loss(
          fmt::format("{} is {}, {} are needed", readable(key), describe(*value), what));
    }
    elements.push_back(*found);
  }
  return std::optional<std::vector<T>>(std::move(elements));
}

}  // namespace

const GgufType* find_gguf_type(uint32_t id) {
  const auto found = std::ranges::find(kGgufTypes, id, &GgufType::id);
  return found == kGgufTypes.end() ? nullptr : &*found;
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Result<std::optional<std::string_view>> GgufMetadata::text(std::string_view key) const {
  const auto at = [](const GgufValue& value, uint64_t) -> std::optional<std::string_view> {
    if (value.type != GgufValueType::kString) return std::nullopt;
    return std::string_view(reinterpret_cast<const char*>(value.bytes.data()) + 8,
                            value.bytes.size() - 8);
  };
  return one<std::string_view>(find(key), key, "a string", at);
}

Result<std::optional<int64_t>> GgufMetadata::integer(std::string_view key) const {
  return one<int64_t>(find(key), key, "an integer", integer_at);
}

Result<std::optional<double>> GgufMetadata::number(std::string_view key) const {
  return one<double>(find(key), key, "a number", number_at);
}

Result<std::optional<bool>> GgufMetadata::boolean(std::string_view key) const {
  return one<bool>(find(key), key, "true or false", boolean_at);
}

Result<std::optional<std::vector<int64_t>>> GgufMetadata::integers(std::string_view key) const {
  return all<int64_t>(find(key), key, "integers", integer_at);
}

Result<std::optional<std::vector<double>>> GgufMetadata::numbers(std::string_view key) const {
  return all<double>(find(key), key, "numbers", number_at);
}

Result<std::optional<std::vector<bool>>> GgufMetadata::booleans(std::string_view key) const {
  return all<bool>(find(key), key, "true and false", boolean_at);
}

Result<std::optional<std::vector<std::string_view>>> GgufMetadata::texts(
    std::string_view key) const {
  const GgufValue* const value = find(key);
  uint64_t position = 0;  // byte position: strings are read in order; the parser has already
                          // checked their lengths
  const auto at = [&](const GgufValue& strings, uint64_t) -> std::optional<std::string_view> {
    if (strings.type != GgufValueType::kString) return std::nullopt;
    uint64_t length;
    std::memcpy(&length, strings.bytes.data() + position, sizeof(length));
    const auto* const text = reinterpret_cast<const char*>(strings.bytes.data()) + position + 8;
    position += 8 + length;
    return std::string_view(text, static_cast<size_t>(length));
  };
  return all<std::string_view>(value, key, "strings", at);
}

// Walks a file once, front to back.
class GgufParser {
 public:
  explicit GgufParser(std::span<const std::byte> file) : file_(file), rest_(file) {}

  Result<GgufHeader> parse() {
    HEDDLE_ASSIGN_OR_RETURN(const Counts counts, read_counts());
    for (uint64_t i = 0; i < counts.entries; ++i) HEDDLE_RETURN_IF_ERROR(read_entry(i));
    HEDDLE_RETURN_IF_ERROR(read_alignment());
    for (uint64_t i = 0; i < counts.tensors; ++i) HEDDLE_RETURN_IF_ERROR(read_tensor(i));
    const auto header_bytes = static_cast<int64_t>(file_.size() - rest_.size());
    header_.data_offset = (header_bytes + alignment_ - 1) / alignment_ * alignment_;
    HEDDLE_RETURN_IF_ERROR(check_layout());
    HEDDLE_RETURN_IF_ERROR(sort_by_name());
    return std::move(header_);
  }

 private:
  struct Counts {
    uint64_t tensors = 0;
    uint64_t entries = 0;
  };

  [[nodiscard]] Status truncated(std::string_view where) const {
    return data_loss(fmt::format(
        "the file of {} bytes ends within {}: truncated; download it again", file_.size(), where));
  }

  template <typename T>
  Result<T> take(std::string_view where) {
    if (rest_.size() < sizeof(T)) return truncated(where);
    const T value = load<T>(rest_, 0);
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }

  Result<std::span<const std::byte>> take_bytes(uint64_t count, std::string_view where) {
    if (count > rest_.size()) {
      return data_loss(fmt::format(
          "{} claims {} bytes where {} are left of the file: truncated; download it again", where,
          count, rest_.size()));
    }
    const auto bytes = rest_.first(static_cast<size_t>(count));
    rest_ = rest_.subspan(static_cast<size_t>(count));
    return bytes;
  }

  Result<std::string_view> take_string(std::string_view where) {
    HEDDLE_ASSIGN_OR_RETURN(const auto length, take<uint64_t>(where));
    HEDDLE_ASSIGN_OR_RETURN(const auto bytes, take_bytes(length, where));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  Result<Counts> read_counts() {
    constexpr std::string_view kMagic = "GGUF";
    if (file_.size() < 8 || std::memcmp(file_.data(), kMagic.data(), kMagic.size()) != 0) {
      return data_loss(
          "it does not begin with \"GGUF\" and a version: no GGUF file; download it "
          "again");
    }
    rest_ = rest_.subspan(kMagic.size());
    HEDDLE_ASSIGN_OR_RETURN(const auto version, take<uint32_t>("the version"));
    if (version == 1) {
      return unimplemented(
          "GGUF version 1, which was in use for a few weeks of 2023; 2 and 3 are served: download "
          "a newer conversion of the model");
    }
    if (version != 2 && version != 3) {
      const uint32_t swapped = __builtin_bswap32(version);
      if (swapped >= 1 && swapped <= 3) {
        return unimplemented(
            "a big-endian file; download the little-endian conversion, or convert it with "
            "gguf-convert-endian FILE little");
      }
      return unimplemented(
          fmt::format("GGUF version {}; convert the file to version 2 or 3", version));
    }
    Counts counts;
    HEDDLE_ASSIGN_OR_RETURN(counts.tensors, take<uint64_t>("the number of tensors"));
    HEDDLE_ASSIGN_OR_RETURN(counts.entries, take<uint64_t>("the number of metadata entries"));
    HEDDLE_RETURN_IF_ERROR(check_count("metadata entries", counts.entries, kLeastEntryBytes));
    HEDDLE_RETURN_IF_ERROR(check_count("tensors", counts.tensors, kLeastTensorBytes));
    return counts;
  }

  [[nodiscard]] Status check_count(std::string_view what, uint64_t count, uint64_t least) const {
    if (count <= rest_.size() / least) return ok_status();
    return data_loss(
        fmt::format("the header claims {} {}, which {} bytes cannot hold: truncated; "
                    "download it again",
                    count, what, rest_.size()));
  }

  Result<GgufValueType> take_type(std::string_view key) {
    HEDDLE_ASSIGN_OR_RETURN(const auto id, take<uint32_t>(readable(key)));
    if (id > static_cast<uint32_t>(GgufValueType::kF64)) {
      return data_loss(
          fmt::format("{} has a value of type {}, which GGUF does not have", readable(key), id));
    }
    return static_cast<GgufValueType>(id);
  }

  Status read_entry(uint64_t index) {
    HEDDLE_ASSIGN_OR_RETURN(const std::string_view key,
                            take_string(fmt::format("the key of metadata entry {}", index)));
    GgufValue value;
    HEDDLE_ASSIGN_OR_RETURN(value.type, take_type(key));
    if (value.type == GgufValueType::kArray) {
      value.is_array = true;
      HEDDLE_ASSIGN_OR_RETURN(value.type, take_type(key));
      HEDDLE_ASSIGN_OR_RETURN(value.count, take<uint64_t>(readable(key)));
      if (value.type == GgufValueType::kArray) {
        return unimplemented(
            fmt::format("{} is an array of arrays, which no model has", readable(key)));
      }
    }
    const uint64_t size = bytes_of(value.type);
    if (size > 0) {
      if (value.count > rest_.size() / size) {
        return data_loss(fmt::format(
            "{} claims {} elements of {} bytes where {} are left of the file: truncated; download "
            "it again",
            readable(key), value.count, size, rest_.size()));
      }
      HEDDLE_ASSIGN_OR_RETURN(value.bytes, take_bytes(value.count * size, readable(key)));
    } else {
      const auto begin = rest_;
      const std::string name = readable(key);  // once: vocabularies have hundreds of thousands
      for (uint64_t i = 0; i < value.count; ++i) {
        HEDDLE_RETURN_IF_ERROR(take_string(name).status());
      }
      value.bytes = begin.first(begin.size() - rest_.size());
    }
    if (!header_.metadata.values_.emplace(key, value).second) {
      return data_loss(fmt::format("the metadata has {} twice", readable(key)));
    }
    return ok_status();
  }

  Status read_alignment() {
    HEDDLE_ASSIGN_OR_RETURN(const auto stored, header_.metadata.integer("general.alignment"));
    alignment_ = stored.value_or(kDefaultAlignment);
    if (alignment_ >= 1 && alignment_ <= kMaxAlignment &&
        std::has_single_bit(static_cast<uint64_t>(alignment_))) {
      return ok_status();
    }
    return data_loss(fmt::format("general.alignment is {}; a power of two up to {} is needed",
                                 alignment_, kMaxAlignment));
  }

  Status read_tensor(uint64_t index) {
    GgufTensor tensor;
    HEDDLE_ASSIGN_OR_RETURN(tensor.name, take_string(fmt::format("the name of tensor {}", index)));
    const Status status = read_tensor_form(tensor);
    if (!status.ok()) return status.with_context(fmt::format("tensor {}", readable(tensor.name)));
    header_.tensors.push_back(tensor);
    return ok_status();
  }

  Status read_tensor_form(GgufTensor& tensor) {
    HEDDLE_ASSIGN_OR_RETURN(const auto rank, take<uint32_t>("its rank"));
    if (rank < 1 || rank > kMaxGgufRank) {
      return data_loss(fmt::format("it has {} dimensions, outside 1 to {}", rank, kMaxGgufRank));
    }
    std::array<int64_t, kMaxGgufRank> dims{};
    for (uint32_t i = 0; i < rank; ++i) {
      HEDDLE_ASSIGN_OR_RETURN(const auto dim, take<uint64_t>("its dimensions"));
      if (dim < 1 || dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return data_loss(fmt::format("dimension {} is {}", i, dim));
      }
      dims[rank - 1 - i] = static_cast<int64_t>(dim);
    }
    HEDDLE_ASSIGN_OR_RETURN(const auto id, take<uint32_t>("its type"));
    HEDDLE_ASSIGN_OR_RETURN(const auto offset, take<uint64_t>("its offset"));
    tensor.type = find_gguf_type(id);
    if (tensor.type == nullptr) {
      return unimplemented(fmt::format(
          "its type is {}, which this build does not know; take the model's Q4_K_M or Q8_0 file",
          id));
    }
    const std::span<const int64_t> shape(dims.data(), rank);
    HEDDLE_ASSIGN_OR_RETURN(const int64_t count, checked_num_elements(shape));
    const auto [columns, block_bytes] = tensor.type->block;
    int64_t num_bytes = 0;
    if (dims[rank - 1] % columns != 0) {
      return data_loss(fmt::format("its rows of {} columns are no whole blocks of {} ({})",
                                   dims[rank - 1], columns, tensor.type->name));
    }
    if (__builtin_mul_overflow(count / columns, block_bytes, &num_bytes)) {
      return data_loss(
          fmt::format("{} elements of {} do not fit into 64 bits", count, tensor.type->name));
    }
    if (offset % static_cast<uint64_t>(alignment_) != 0) {
      return data_loss(
          fmt::format("its offset {} is no multiple of the alignment, {}", offset, alignment_));
    }
    // Whether offset and size are inside the file can be checked only after the header's length is
    // known.
    if (offset > file_.size() || num_bytes > static_cast<int64_t>(file_.size())) {
      return data_loss(
          fmt::format("its {} bytes from {} on are not in a file of {}: truncated; download it "
                      "again",
                      num_bytes, offset, file_.size()));
    }
    tensor.shape = Shape(shape);
    tensor.begin = static_cast<int64_t>(offset);
    tensor.end = tensor.begin + num_bytes;
    return ok_status();
  }

  // Checks that no tensor overlaps another or exceeds the file.
  [[nodiscard]] Status check_layout() const {
    const std::vector<GgufTensor>& tensors = header_.tensors;
    std::vector<size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, {}, [&](size_t i) { return tensors[i].begin; });
    const int64_t data_size = static_cast<int64_t>(file_.size()) - header_.data_offset;
    const GgufTensor* previous = nullptr;
    for (const size_t index : order) {
      const GgufTensor& tensor = tensors[index];
      if (tensor.end > data_size) {
        return data_loss(fmt::format(
            "tensor {} ends at byte {} of the data, which has {}: truncated; download it again",
            readable(tensor.name), tensor.end, std::max<int64_t>(data_size, 0)));
      }
      if (previous != nullptr && tensor.begin < previous->end) {
        return data_loss(fmt::format(
            "tensor {} begins at byte {} of the data, inside tensor {}, which ends at {}",
            readable(tensor.name), tensor.begin, readable(previous->name), previous->end));
      }
      previous = &tensor;
    }
    return ok_status();
  }

  Status sort_by_name() {
    std::vector<GgufTensor>& tensors = header_.tensors;
    std::ranges::sort(tensors, {}, &GgufTensor::name);
    const auto twin = std::ranges::adjacent_find(tensors, {}, &GgufTensor::name);
    if (twin == tensors.end()) return ok_status();
    return data_loss(fmt::format("tensor {} appears twice", readable(twin->name)));
  }

  std::span<const std::byte> file_;
  std::span<const std::byte> rest_;
  GgufHeader header_;
  int64_t alignment_ = kDefaultAlignment;
};

Result<GgufHeader> parse_gguf_header(std::span<const std::byte> file) {
  return GgufParser(file).parse();
}

}  // namespace heddle::checkpoint
