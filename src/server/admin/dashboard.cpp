// SPDX-License-Identifier: Apache-2.0
#include "server/admin/dashboard.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/printable.h"
#include "server/http/api_error.h"

namespace heddle::server {
namespace {

constexpr std::array<std::pair<std::string_view, const char*>, 4> kContentTypes = {{
    {".html", "text/html; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".svg", "image/svg+xml"},
}};

const char* content_type_of(std::string_view name) {
  const auto* const found = std::ranges::find_if(
      kContentTypes, [name](const auto& type) { return name.ends_with(type.first); });
  return found != kContentTypes.end() ? found->second : "application/octet-stream";
}

}  // namespace

bool wants_page(const HttpRequest& request) {
  return lower_case(request.header("accept")).find("text/html") != std::string::npos;
}

HttpResponse dashboard_page(std::string_view name, const HttpRequest& request) {
  const auto files = dashboard_files();
  const auto found = std::ranges::find(files, name, &DashboardFile::name);
  if (found == files.end()) {
    return error_response(
        {.status = 404,
         .code = "not_found",
         .message = fmt::format("There is nothing at {}.", printable(request.path, 200))},
        request);
  }
  return {.content_type = content_type_of(name),
          .headers = {{"Content-Security-Policy",
                       "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                       "connect-src 'self'; base-uri 'none'; form-action 'none'; "
                       "frame-ancestors 'none'"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Cache-Control", "no-cache"},
                      {"Vary", "Accept"}},
          .body = std::string(found->content)};
}

}  // namespace heddle::server
