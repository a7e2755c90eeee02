FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /bridge ./cmd/bridge

# Static: for MCP servers behind HTTP, and for --demo. Servers that run as child
# processes need an image that has their runtime.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /bridge /bridge
USER nonroot:nonroot
EXPOSE 8080
ENTRYPOINT ["/bridge"]
