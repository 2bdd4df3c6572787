// SPDX-License-Identifier: Apache-2.0
#include "media/size_rules.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace heddle::media {

namespace {

double real(int64_t value) { return static_cast<double>(value); }

int64_t whole(double value) { return static_cast<int64_t>(value); }

int64_t up_to_multiple(int64_t value, int64_t factor) {
  return (value + factor - 1) / factor * factor;
}

MediaError no_size(MediaFault fault, ImageSize picture, std::string_view why) {
  return {fault, fmt::format("the picture has {} x {} pixels, and {}", picture.width,
                             picture.height, why)};
}

MediaResult<FittedSize> fit_one(const SmartResize& rule, ImageSize picture) {
  constexpr double kMostAspect = 200;
  const auto [height, width] = picture;
  const double h = real(height), w = real(width), f = real(rule.factor);
  if (std::max(h, w) / std::min(h, w) > kMostAspect) {
    return no_size(MediaFault::kAspectRatio, picture,
                   "for this model one side may be at most 200 times the other; crop it");
  }
  ImageSize size{.height = whole(f * std::nearbyint(h / f)),
                 .width = whole(f * std::nearbyint(w / f))};
  if (size.pixels() > rule.max_pixels) {
    const double shrink = std::sqrt(h * w / real(rule.max_pixels));
    size.height = std::max(rule.factor, rule.factor * whole(std::floor(h / shrink / f)));
    size.width = std::max(rule.factor, rule.factor * whole(std::floor(w / shrink / f)));
  } else if (size.pixels() < rule.min_pixels) {
    const double grow = std::sqrt(real(rule.min_pixels) / (h * w));
    size.height = rule.factor * whole(std::ceil(h * grow / f));
    size.width = rule.factor * whole(std::ceil(w * grow / f));
  }
  return FittedSize{.content = size, .canvas = size};
}

MediaResult<FittedSize> fit_one(const BudgetSearch& rule, ImageSize picture) {
  const auto [height, width] = picture;
  const double h = real(height), w = real(width);
  const int64_t token_pixels = rule.frames * rule.factor * rule.factor;
  const int64_t low = rule.min_tokens * token_pixels, high = rule.max_tokens * token_pixels;
  const auto aligned = [&](int64_t side) { return up_to_multiple(side, rule.factor); };
  ImageSize canvas{.height = aligned(height), .width = aligned(width)};
  if (rule.frames * canvas.pixels() < low) {
    const double grow = std::sqrt(real(low) / real(rule.frames * picture.pixels()));
    canvas = {.height = aligned(whole(std::ceil(h * grow))),
              .width = aligned(whole(std::ceil(w * grow)))};
  }
  if (rule.frames * canvas.pixels() > high) {
    bool found = false;
    for (int64_t first = 1, last = height; first <= last;) {
      const int64_t middle = (first + last) / 2;
      const ImageSize candidate{.height = aligned(middle),
                                .width = aligned(std::max(int64_t{1}, width * middle / height))};
      if (rule.frames * candidate.pixels() <= high) {
        canvas = candidate;
        found = true;
        first = middle + 1;
      } else {
        last = middle - 1;
      }
    }
    if (!found) {
      return no_size(MediaFault::kAspectRatio, picture,
                     fmt::format("no height keeps it within {} tokens; crop it", rule.max_tokens));
    }
  }
  double scale = std::min(real(canvas.height) / h, real(canvas.width) / w);
  if (rule.frames * picture.pixels() >= low) scale = std::min(1.0, scale);
  const auto side = [scale](double length, int64_t most) {
    return std::clamp(whole(std::floor(length * scale)), int64_t{1}, most);
  };
  return FittedSize{.content = {.height = side(h, canvas.height), .width = side(w, canvas.width)},
                    .canvas = canvas};
}

MediaResult<FittedSize> fit_one(const NeverEnlarge& rule, ImageSize picture) {
  const auto [height, width] = picture;
  const int64_t patches =
      std::max(int64_t{1}, height / rule.patch) * std::max(int64_t{1}, width / rule.patch);
  const int64_t most = rule.max_side_patches * rule.patch;
  const double scale = std::min({1.0, std::sqrt(real(rule.max_patches) / real(patches)),
                                 real(most) / real(height), real(most) / real(width)});
  const auto side = [&](int64_t length) {
    return std::min(std::max(int64_t{1}, whole(real(length) * scale)), most);
  };
  const ImageSize content{.height = side(height), .width = side(width)};
  const int64_t unit = rule.patch * rule.merge;
  return FittedSize{.content = content,
                    .canvas = {.height = up_to_multiple(content.height, unit),
                               .width = up_to_multiple(content.width, unit)}};
}

MediaResult<FittedSize> fit_one(const AreaFit& rule, ImageSize picture) {
  const auto [height, width] = picture;
  const int64_t unit = rule.patch * rule.pool;
  const int64_t max_pixels = rule.max_tokens * unit * unit;
  const double scale = std::sqrt(real(max_pixels) / real(picture.pixels()));
  const auto side = [&](int64_t length) {
    return unit * whole(std::floor(scale * real(length) / real(unit)));
  };
  ImageSize size{.height = side(height), .width = side(width)};
  if (size.height == 0 && size.width == 0) {
    return no_size(MediaFault::kTooSmall, picture, "nothing is left of it in whole tokens");
  }
  const int64_t long_side = std::max(height, width), short_side = std::min(height, width);
  const int64_t stretched = std::min(unit * (long_side / short_side), unit * rule.max_tokens);
  if (size.height == 0) size = {.height = unit, .width = stretched};
  if (size.width == 0) size = {.height = stretched, .width = unit};
  return FittedSize{.content = size, .canvas = size};
}

MediaResult<FittedSize> fit_one(const FixedSize& rule, ImageSize /*picture*/) {
  return FittedSize{.content = rule.size, .canvas = rule.size};
}

MediaResult<FittedSize> fit_one(const LongestEdge& rule, ImageSize picture) {
  const auto [height, width] = picture;
  const double ratio =
      std::max(real(height) / real(rule.longest), real(width) / real(rule.longest));
  ImageSize size = picture;
  if (ratio > 1) {
    size = {.height = whole(std::floor(real(height) / ratio)),
            .width = whole(std::floor(real(width) / ratio))};
  }
  if (size.height < 1 || size.width < 1) {
    return no_size(
        MediaFault::kTooSmall, picture,
        fmt::format("scaled down to {} it has no pixel on its short side; crop it", rule.longest));
  }
  size = {.height = up_to_multiple(size.height, rule.factor),
          .width = up_to_multiple(size.width, rule.factor)};
  return FittedSize{.content = size, .canvas = size};
}

}  // namespace

MediaResult<FittedSize> fit(const SizeRule& rule, ImageSize picture) {
  return std::visit([&](const auto& one) { return fit_one(one, picture); }, rule);
}

std::vector<Crop> crops_of(const PanAndScan& rule, ImageSize picture) {
  const bool is_wide = picture.width >= picture.height;
  const int64_t length = is_wide ? picture.width : picture.height;
  const int64_t breadth = is_wide ? picture.height : picture.width;
  if (real(length) / real(breadth) < rule.min_ratio) return {};
  int64_t count = whole(std::floor(real(length) / real(breadth) + 0.5));
  count = std::min(length / rule.min_crop, count);
  count = std::clamp(count, int64_t{2}, std::max(int64_t{2}, rule.max_crops));
  const int64_t step = (length + count - 1) / count;
  if (std::min(step, breadth) < rule.min_crop) return {};
  std::vector<Crop> crops;
  for (int64_t begin = 0; begin < length; begin += step) {
    const int64_t extent = std::min(step, length - begin);
    crops.push_back(is_wide
                        ? Crop{.y = 0, .x = begin, .size = {.height = breadth, .width = extent}}
                        : Crop{.y = begin, .x = 0, .size = {.height = extent, .width = breadth}});
  }
  return crops;
}

}  // namespace heddle::media
