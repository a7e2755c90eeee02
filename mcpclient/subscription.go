package mcpclient

import "github.com/mcpbridge/mcpbridge/mcpclient/transport"

func (c *Client) routeSubscription(*link, transport.Inbound) bool { return false }

func (c *Client) subscriptionsConnected(*session) {}

func (c *Client) subscriptionsLost(*session) {}
